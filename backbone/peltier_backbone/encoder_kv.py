"""What the decoder reads of the encoder: keys and values of every cross-attention, computed once a row."""

from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class EncoderKV:
    """Rows back to back, as they were encoded: for each decoder block keys, then values, [tokens, 2 * attention]."""

    key_values: tuple[Tensor, ...]
    lengths: tuple[int, ...]

    def after(self, num_rows: int) -> "EncoderKV":
        """The rows behind the first `num_rows`."""
        start = sum(self.lengths[:num_rows])
        return EncoderKV(tuple(layer[start:] for layer in self.key_values), self.lengths[num_rows:])
