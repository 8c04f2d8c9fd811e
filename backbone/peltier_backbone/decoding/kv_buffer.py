"""A buffer of the keys and values of many rows, in slots that grow as rows grow."""

from collections.abc import Sequence

import torch
from torch import Tensor

# Widths grow by at least this many tokens, so that a growing text does not copy the buffer at every step.
_GRAIN = 16


class KVBuffer:
    """`data` is [layers, 2 (keys, values), slots, heads, width, head size], `lengths` is each slot's number of tokens.

    Values beyond a slot's length are masked, but they are finite, so that no product with them is NaN.
    """

    def __init__(self, shape: tuple[int, int, int], device: torch.device, dtype: torch.dtype) -> None:
        layers, heads, head_size = shape
        self.data = torch.zeros(layers, 2, 0, heads, 0, head_size, device=device, dtype=dtype)
        self.lengths: list[int] = []

    def first_keys(self, slots: Sequence[int]) -> list[int]:
        """The numbers of the first keys of `slots` in a layer, counted over all slots and heads."""
        span = self.data.shape[3] * self.data.shape[4]
        return [slot * span for slot in slots]

    def write(self, layer: int, key_value: Tensor, numbers: Tensor) -> None:
        """Make token t of `key_value` [tokens, 2 * attention] key number `numbers[t]` of a layer (see `first_keys`)."""
        store = self.data[layer]
        _, num_slots, heads, width, size = store.shape
        # By key number, [numbers, 2, heads, head size]; the heads of a key are `width` keys apart.
        by_number = store.as_strided(
            ((num_slots * heads - heads + 1) * width, 2, heads, size),
            (size, store.stride(0), width * size, 1), store.storage_offset(),
        )  # fmt: skip
        by_number[numbers] = key_value.view(len(key_value), 2, heads, size).to(store.dtype)

    def reserve(self, slots: int, width: int) -> None:
        """Allocate at least `slots` slots of `width` tokens, and keep the current values."""
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
        """Add one to the length of each of `slots`, to which the caller has written a token."""
        for slot in slots:
            self.lengths[slot] += 1

    def release(self) -> None:
        """Free all memory; no slot may be in use."""
        self.data = self.data[:, :, :0, :, :0].clone()
        self.lengths = []

    def clear(self, slots: Tensor) -> None:
        """Zero `slots`, so that the next row does not read the values of an earlier row."""
        self.data.index_fill_(2, slots, 0)

    def copy(self, slots: Sequence[int], sources: Sequence[int]) -> None:
        """Copy to each of `slots` the values of its source as they were before the call; sources may repeat."""
        width, device = max(self.lengths[source] for source in sources), self.data.device
        pairs = torch.tensor([*slots, *sources], pin_memory=device.type == "cuda").to(device, non_blocking=True)
        to, read = torch.split(pairs, len(slots))
        self.data[:, :, to, :, :width] = self.data[:, :, read, :, :width]
        lengths = [self.lengths[source] for source in sources]
        for slot, length in zip(slots, lengths, strict=True):
            self.lengths[slot] = length
