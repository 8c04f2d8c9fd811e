"""The keys and values of every cross-attention, which are computed once for each encoded row."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class EncoderKV:
    """For each decoder block the keys and values [tokens, 2 * attention] of packed rows, in the encoder's order."""

    key_values: tuple[Tensor, ...]
    lengths: tuple[int, ...]

    def after(self, num_rows: int) -> "EncoderKV":
        """All rows but the first `num_rows`."""
        start = sum(self.lengths[:num_rows])
        return EncoderKV(tuple(layer[start:] for layer in self.key_values), self.lengths[num_rows:])
