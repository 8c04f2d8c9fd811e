"""Keys and values of many rows, kept in slots that grow by need."""

from collections.abc import Sequence

import torch

# Widths grow by at least this many tokens, so that a growing text does not move the store at every step.
_GRAIN = 16


class KVBuffer:
    """`data` is [layers, 2 (keys, values), slots, heads, width, head size], `lengths` what each slot holds.

    What lies beyond a slot's length is finite: it is masked, but a product with it must not be NaN.
    """

    def __init__(self, shape: tuple[int, int, int], device: torch.device, dtype: torch.dtype) -> None:
        layers, heads, head_size = shape
        self.data = torch.zeros(layers, 2, 0, heads, 0, head_size, device=device, dtype=dtype)
        self.lengths: list[int] = []

    def reserve(self, slots: int, width: int) -> None:
        """Make room for `slots` slots of `width` tokens; what is there stays."""
        old_slots, old_width = self.data.shape[2], self.data.shape[4]
        if slots <= old_slots and width <= old_width:
            return
        new_slots = old_slots if slots <= old_slots else max(slots, 2 * old_slots)
        new_width = old_width if width <= old_width else max(-(-width // _GRAIN) * _GRAIN, old_width + old_width // 2)
        layers, _, _, heads, _, head_size = self.data.shape
        data = self.data.new_zeros(layers, 2, new_slots, heads, new_width, head_size)
        data[:, :, :old_slots, :, :old_width] = self.data
        self.data = data
        self.lengths += [0] * (new_slots - old_slots)

    def grow(self, slots: Sequence[int]) -> None:
        """Count a token that was written to each of `slots`."""
        for slot in slots:
            self.lengths[slot] += 1

    def release(self) -> None:
        """Give all memory back; nothing may be held any more."""
        self.data = self.data[:, :, :0, :, :0].clone()
        self.lengths = []

    def clear(self, slots: Sequence[int], start: int = 0) -> None:
        """Zero `slots` from token `start` on: what a former row left there is no part of the next one's products."""
        self.data[:, :, list(slots), :, start:] = 0

    def copy(self, slots: Sequence[int], sources: Sequence[int]) -> None:
        """Give each of `slots` what its source held before; a source may be there twice."""
        width = max(self.lengths[source] for source in sources)
        self.data[:, :, list(slots), :, :width] = self.data[:, :, list(sources), :, :width]
        lengths = [self.lengths[source] for source in sources]
        for slot, length in zip(slots, lengths, strict=True):
            self.lengths[slot] = length
