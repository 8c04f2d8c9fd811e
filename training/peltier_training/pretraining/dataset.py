"""Corrupted texts, drawn from a stream of tokens."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from tokenizers import Tokenizer
from torch import Tensor
from torch.utils.data import Dataset

from peltier_training.errors import TrainingError
from peltier_training.pretraining.corpus import is_held_out
from peltier_training.pretraining.spans import SpanCorruption

TokenStream = NDArray[np.uint16]

TRAIN, HELD_OUT = "train.tokens", "held-out.tokens"
_BATCH_DOCUMENTS = 256  # tokenised in parallel
SpanExample = dict[str, Tensor]

_MAX_HELD_OUT = 512


def write_tokens(documents: Iterable[str], tokenizer: Tokenizer, directory: Path) -> int:
    """Write the tokens of all documents to `directory`, those held out to a separate file. Returns their number."""
    number = 0
    with (directory / TRAIN).open("wb") as train, (directory / HELD_OUT).open("wb") as held_out:
        for encodings in _encoded(iter(documents), tokenizer):
            for encoding in encodings:
                file = held_out if is_held_out(number) else train
                file.write(np.asarray(encoding.ids, np.uint16).tobytes())
                number += 1
    return number


def read_tokens(path: Path) -> TokenStream:
    """The tokens of a file of `write_tokens` [tokens], memory-mapped."""
    try:
        return np.memmap(path, np.uint16, "r")
    except ValueError:  # an empty file cannot be mapped
        raise TrainingError(f"the text is too small: {path.name} is empty") from None


def _encoded(documents: Iterator[str], tokenizer: Tokenizer) -> Iterator[list]:  # type: ignore[type-arg]
    while chunk := list(islice(documents, _BATCH_DOCUMENTS)):
        yield tokenizer.encode_batch_fast(chunk, add_special_tokens=False)


class TrainingText(Dataset[SpanExample]):
    """`size` examples from the blocks of `stream`. Example `i` depends only on the seed and on `i`. Each pass over the
    stream has its own offset of the first block, order of blocks, and spans."""

    def __init__(self, stream: TokenStream, corruption: SpanCorruption, *, size: int, seed: int) -> None:
        self._stream, self._corruption, self._size, self._seed = stream, corruption, size, seed
        # The offset takes the place of one block.
        self._num_blocks = _num_blocks(stream, corruption, "train on", 2) - 1
        self._pass, self._begins = -1, np.empty(0, np.int64)

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> SpanExample:
        number, place = divmod(index, self._num_blocks)
        if number != self._pass:
            self._pass, self._begins = number, self._draw(number)
        rng = np.random.default_rng([self._seed, index])
        return _corrupted(self._stream, int(self._begins[place]), self._corruption, rng)

    def _draw(self, number: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
        """The first token of each block of a pass [blocks]."""
        rng = np.random.default_rng([self._seed, number, 1])
        length = self._corruption.text_length
        return rng.permutation(self._num_blocks) * length + rng.integers(length)


class HeldOutText(Dataset[SpanExample]):
    """At most 512 evenly spaced blocks of `stream`, with the same spans in every evaluation."""

    def __init__(self, stream: TokenStream, corruption: SpanCorruption) -> None:
        self._stream, self._corruption = stream, corruption
        self._num_blocks = _num_blocks(stream, corruption, "hold out", 1)

    def __len__(self) -> int:
        return min(self._num_blocks, _MAX_HELD_OUT)

    def __getitem__(self, index: int) -> SpanExample:
        block = index * self._num_blocks // len(self)
        return _corrupted(
            self._stream, block * self._corruption.text_length, self._corruption, np.random.default_rng(index)
        )


def collate(examples: Sequence[SpanExample]) -> SpanExample:
    """A batch: input_ids [rows, input_length] and labels [rows, target_length]."""
    return {name: torch.stack([example[name] for example in examples]) for name in ("input_ids", "labels")}


def _num_blocks(stream: TokenStream, corruption: SpanCorruption, purpose: str, least: int) -> int:
    number = len(stream) // corruption.text_length
    if number < least:
        needed = least * corruption.text_length
        raise TrainingError(
            f"the text is too small: it has {len(stream)} tokens to {purpose} and needs at least {needed}"
        )
    return number


def _corrupted(stream: TokenStream, begin: int, corruption: SpanCorruption, rng: np.random.Generator) -> SpanExample:
    text = stream[begin : begin + corruption.text_length].astype(np.int64)
    source, target = corruption.corrupt(text, rng)
    return {"input_ids": torch.from_numpy(source), "labels": torch.from_numpy(target)}
