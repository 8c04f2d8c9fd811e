"""The decoder's key-value cache: rows join and leave between two steps, and no other row is copied."""

import itertools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from peltier_backbone.checkpoint.t5_config import T5Config
from peltier_backbone.decoding.encoder_kv import EncoderKV
from peltier_backbone.decoding.kv_buffer import KVBuffer


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
        slots = self._take(sum(copies))
        try:
            yield self._arrival(slots, lengths, copies)
        except BaseException:
            self.leave(slots)
            raise

    def _arrival(self, slots: list[int], lengths: Sequence[int], copies: Sequence[int]) -> Arrival:
        self.memory.reserve(max(slots) + 1, max(lengths))
        self.own.reserve(max(slots) + 1, 1)
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

    def _take(self, count: int) -> list[int]:
        slots = list(itertools.islice((slot for slot in itertools.count() if slot not in self._live), count))
        self._live.update(slots)
        return slots
