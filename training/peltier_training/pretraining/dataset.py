"""Corrupted texts, drawn from a stream of tokens: span corruption, the pretraining objective of T5 (Raffel et al. 2020,
sections 3.1.4 and 3.3.4).

Random spans of a text are removed. The input has a sentinel in place of each span. The target has each sentinel
followed by its span. Both end with </s>.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
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

EOS = 1
TokenIds = NDArray[np.int64]
TokenStream = NDArray[np.uint16]
TRAIN, HELD_OUT = "train.tokens", "held-out.tokens"
_BATCH_DOCUMENTS = 256  # tokenised in parallel
SpanExample = dict[str, Tensor]
_MAX_HELD_OUT = 512


@dataclass(frozen=True)
class SpanCorruption:
    """Removes `num_noise` of `text_length` tokens in `num_spans` spans. Every input has `input_length` tokens and every
    target `target_length`, so nothing is padded.

    `first_sentinel` is the id of <extra_id_0>, the last of the vocabulary; the next sentinels count downwards."""

    text_length: int
    num_noise: int
    num_spans: int
    first_sentinel: int

    @property
    def input_length(self) -> int:
        """The remaining tokens, a sentinel per span, and </s>."""
        return self.text_length - self.num_noise + self.num_spans + 1

    @property
    def target_length(self) -> int:
        """The removed tokens, a sentinel per span, and </s>."""
        return self.num_noise + self.num_spans + 1

    def corrupt(self, text: TokenIds, rng: np.random.Generator) -> tuple[TokenIds, TokenIds]:
        """The input and the target of `text` [text_length] with spans drawn by `rng`."""
        noise = self._noise(rng)
        return self._delimited(text, noise), self._delimited(text, ~noise)

    def _noise(self, rng: np.random.Generator) -> NDArray[np.bool_]:
        """Which tokens are removed [text_length]: kept and removed spans alternate, beginning with a kept one."""
        kept = _partition(self.text_length - self.num_noise, self.num_spans, rng)
        noise = _partition(self.num_noise, self.num_spans, rng)
        lengths = np.stack([kept, noise], axis=1).ravel()
        return np.repeat(np.arange(2 * self.num_spans) % 2 == 1, lengths)

    def _delimited(self, text: TokenIds, hidden: NDArray[np.bool_]) -> TokenIds:
        """`text` with each run of `hidden` tokens as one sentinel, and </s>."""
        begins = hidden & ~np.concatenate([[False], hidden[:-1]])
        sentinels = self.first_sentinel + 1 - np.cumsum(begins)
        return np.append(np.where(begins, sentinels, text)[begins | ~hidden], EOS)


def fit_length(input_length: int, first_sentinel: int, density: float = 0.15, mean_span: float = 3.0) -> SpanCorruption:
    """The corruption for the longest texts whose inputs have at most `input_length` tokens."""
    lengths = range(2, 2 * input_length)
    fits = [_of_length(length, first_sentinel, density, mean_span) for length in lengths]
    return max((fit for fit in fits if fit.input_length <= input_length), key=lambda fit: fit.text_length)


def _of_length(text_length: int, first_sentinel: int, density: float, mean_span: float) -> SpanCorruption:
    num_noise = min(max(round(text_length * density), 1), text_length - 1)
    num_spans = max(round(num_noise / mean_span), 1)
    return SpanCorruption(text_length, num_noise, min(num_spans, text_length - num_noise), first_sentinel)


def _partition(total: int, parts: int, rng: np.random.Generator) -> TokenIds:
    """Positive lengths [parts] with the sum `total`, drawn uniformly from all such partitions."""
    cuts = np.sort(rng.choice(total - 1, parts - 1, replace=False)) + 1
    return np.diff(cuts, prepend=0, append=total)


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
