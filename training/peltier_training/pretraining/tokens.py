"""Tokenised text as flat arrays on disk, for training and evaluation."""

from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

from peltier_training.errors import TrainingError
from peltier_training.pretraining.corpus import is_held_out

Stream = NDArray[np.uint16]

TRAIN, HELD_OUT = "train.tokens", "held-out.tokens"
_BATCH_DOCUMENTS = 256  # tokenised in parallel


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


def read_tokens(path: Path) -> Stream:
    """The tokens of a file of `write_tokens` [tokens], memory-mapped."""
    try:
        return np.memmap(path, np.uint16, "r")
    except ValueError:  # an empty file cannot be mapped
        raise TrainingError(f"the text is too small: {path.name} is empty") from None


def _encoded(documents: Iterator[str], tokenizer: Tokenizer) -> Iterator[list]:  # type: ignore[type-arg]
    while chunk := list(islice(documents, _BATCH_DOCUMENTS)):
        yield tokenizer.encode_batch_fast(chunk, add_special_tokens=False)
