"""The keys and values of every cross-attention, which are computed once for each encoded row."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class EncoderKV:
    """For each decoder block the keys and values [tokens, 2 * attention] of packed rows, in the encoder's order."""

    key_values: tuple[Tensor, ...]
    lengths: tuple[int, ...]
