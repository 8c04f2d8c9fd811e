"""The decoder's keys and values: those of the encoder for cross-attention, and a cache whose buffers grow and whose
rows join and leave between two steps without a copy of other rows."""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from peltier_backbone.checkpoint.t5_config import T5Config

# Widths grow by at least this many tokens, so that a growing text does not copy the buffer at every step.
_GRAIN = 16


@dataclass(frozen=True)
class EncoderKV:
    """For each decoder block the keys and values [tokens, 2 * attention] that its cross-attention reads, of packed rows
    in the encoder's order. They are computed once for each encoded row."""

    key_values: tuple[Tensor, ...]
    lengths: tuple[int, ...]


class Arrival(NamedTuple):
    """Rows that join: the `slots` and the `copies` of each row, the `numbers` of the keys of all their tokens (see
    `KVBuffer.first_keys`), and which of the rows' tokens these are, or None if they are all in order."""

    slots: list[int]
    copies: Sequence[int]
    numbers: list[int]
    tokens: list[int] | None

    def by_row(self) -> list[list[int]]:
        """The slots of each row."""
        free = iter(self.slots)
        return [[next(free) for _ in range(count)] for count in self.copies]


class Cache:
    """Slots. Each slot has, in `dtype`, the keys and values of its decoded tokens (`own`) and of its encoder row
    (`memory`).

    Callers create and use it under `torch.inference_mode`, from one thread at a time.
    """

    def __init__(self, config: T5Config, device: torch.device, dtype: torch.dtype) -> None:
        shape = (config.num_decoder_layers, config.num_heads, config.head_size)
        self.own, self.memory = KVBuffer(shape, device, dtype), KVBuffer(shape, device, dtype)
        self._live: set[int] = set()

    @property
    def lengths(self) -> dict[int, int]:
        """How many tokens each live slot has decoded."""
        return {slot: self.own.lengths[slot] for slot in sorted(self._live)}

    def join(self, memory: EncoderKV, copies: Sequence[int] | None = None) -> list[list[int]]:
        """Assign `copies[r]` slots (default one) to each row r of `memory`, the lowest free slots first; returns each
        row's slots."""
        with self.admit(memory.lengths, copies) as arrival:
            device = self.memory.data.device
            tokens = None if arrival.tokens is None else torch.tensor(arrival.tokens, device=device)
            slots, numbers = (torch.tensor(own, device=device) for own in (arrival.slots, arrival.numbers))
            self.keep(memory, slots, numbers, tokens)
            return arrival.by_row()

    @contextmanager
    def admit(self, lengths: Sequence[int], copies: Sequence[int] | None = None) -> Iterator[Arrival]:
        """Assign slots to rows of `lengths` tokens as `join` does. In the block `keep` fills them, from tensors of the
        `Arrival`. If the block raises, they are free again."""
        copies = copies or [1] * len(lengths)
        slots = self._reserve(sum(copies), max(lengths))
        try:
            yield self._arrival(slots, lengths, copies)
        except BaseException:
            self.leave(slots)
            raise

    def _reserve(self, count: int, width: int) -> list[int]:
        """The lowest `count` free slots, with room for encoder rows of `width` tokens. They are in use only when both
        buffers have room, so that a failure has nothing to free but the buffers of an empty cache."""
        slots = list(itertools.islice((slot for slot in itertools.count() if slot not in self._live), count))
        try:
            self.memory.reserve(max(slots) + 1, width)
            self.own.reserve(max(slots) + 1, 1)
        except BaseException:
            self.leave([])
            raise
        self._live.update(slots)
        return slots

    def _arrival(self, slots: list[int], lengths: Sequence[int], copies: Sequence[int]) -> Arrival:
        rows = [row for row, count in enumerate(copies) for _ in range(count)]
        for slot, row in zip(slots, rows, strict=True):
            self.memory.lengths[slot] = lengths[row]
        starts = list(accumulate(lengths, initial=0))
        pairs = list(zip(self.memory.first_keys(slots), rows, strict=True))
        numbers = [key + token for key, row in pairs for token in range(lengths[row])]
        tokens = [token for row in rows for token in range(*starts[row : row + 2])]
        return Arrival(slots, copies, numbers, tokens if len(slots) > len(lengths) else None)

    def keep(self, memory: EncoderKV, slots: Tensor, numbers: Tensor, tokens: Tensor | None) -> None:
        """Fill the slots of an `Arrival`, whose numbers are on the device."""
        self.own.clear(slots)
        self.memory.clear(slots)
        for layer, key_value in enumerate(memory.key_values):
            self.memory.write(layer, key_value if tokens is None else key_value.index_select(0, tokens), numbers)

    def leave(self, slots: Sequence[int]) -> None:
        """Free `slots`; the rows that join next reuse them. An empty cache takes no memory."""
        self._live.difference_update(slots)
        for store in (self.own, self.memory):
            if not self._live:
                store.release()
            else:
                for slot in slots:
                    store.lengths[slot] = 0

    def reorder(self, slots: Sequence[int], sources: Sequence[int]) -> None:
        """Let each of `slots` continue from the decoded tokens of its source; all read one encoder row (beams)."""
        self.own.copy(slots, sources)


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
        lengths = self.lengths + [0] * (new_slots - old_slots)
        self.data, self.lengths = data, lengths

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
