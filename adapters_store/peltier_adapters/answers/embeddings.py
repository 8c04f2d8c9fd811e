"""Converts the outputs of embedding tasks to embeddings."""

import math
from base64 import b64encode
from typing import Literal

import numpy as np
from torch import Tensor
from torch.nn import functional as F

from peltier_adapters.spec.tasks import TaskSpec

Precision = Literal["int8", "uint8", "binary", "ubinary"]

# Nine significant digits tell all float32 apart.
_DIGITS = 9


def read(task: TaskSpec, outputs: Tensor, dimensions: int | None = None, *, raw: bool = False) -> Tensor:
    """The embeddings of outputs [.., size]: the first `dimensions` values, of unit length if the task is normalized,
    unless they are wanted `raw`. An output of zeros stays so."""
    kept = outputs if dimensions is None else outputs[..., :dimensions]
    return F.normalize(kept, dim=-1) if task.normalized and not raw else kept


def relative_distance(found: Tensor, wanted: Tensor) -> float:
    """The length of the difference of two embeddings, relative to that of the wanted one; infinite beside a wanted
    embedding of zeros."""
    length = float(wanted.norm())
    return float((found - wanted).norm()) / length if length else math.inf


def to_base64(embedding: Tensor) -> str:
    """The values of an embedding [size] in float32, little-endian, in base64."""
    return b64encode(embedding.numpy().astype("<f4", copy=False).tobytes()).decode()


def quantize(embedding: Tensor, precision: Precision) -> list[int]:
    """The values of an embedding [size] as `quantize_embeddings` of sentence-transformers has them.

    `int8` and `uint8` are the number of the value's bucket among 256 of equal width from -1 to 1, the range of the
    values of a vector of unit length. `binary` (signed) and `ubinary` (unsigned) have a bit for each value, set above
    0: eight of them are a number, the first one its highest bit, and zeros fill the last number.
    """
    values = embedding.numpy()
    if precision in ("binary", "ubinary"):
        numbers = np.packbits(values > 0)
    else:
        numbers = np.clip(np.floor((values + np.float32(1)) / (np.float32(2) / np.float32(255))), 0, 255)
    found: list[int] = (numbers.astype(np.int64) - (128 if precision in ("int8", "binary") else 0)).tolist()
    return found


def to_list(embedding: Tensor) -> list[float]:
    """The values of an embedding [size] in float32, rounded to nine digits of the largest one. Their JSON is 40 %
    shorter than without rounding."""
    values = embedding.numpy().astype(np.float64)
    largest = float(np.abs(values).max())
    if largest > 0:
        values = values.round(_DIGITS - 1 - math.floor(math.log10(largest)))
    found: list[float] = values.tolist()
    return found
