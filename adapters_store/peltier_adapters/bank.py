"""Stacked tensors of all resident adapters of one signature.

Writers only touch slots that no batch reads: a slot is free, or held by a `Resident` that its user keeps until its last
batch is done. Growing replaces the tensors by larger copies, so a batch that gathered before keeps valid ones. The lock
orders writers among themselves.
"""

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count

import torch
from peltier_backbone.load import Backbone
from torch import Tensor

from peltier_adapters.artifact import Artifact
from peltier_adapters.label_tree import LabelTree, grow_tree
from peltier_adapters.manifest import Manifest
from peltier_adapters.spec import HeadSpec, Parts, tensor_shapes

_GROWTH = 1.25


class Bank:
    """`[slots, …]` float32 tensors of one signature. `number` orders banks; slots are reused."""

    def __init__(self, number: int, parts: Parts, backbone: Backbone) -> None:
        self.number, self.parts = number, parts
        self._shapes = tensor_shapes(parts, backbone.config)
        self._device = backbone.device
        self._tensors = self._empty()
        self._free: list[int] = []
        self._capacity = 0
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Bytes of all slots, used and free."""
        return sum(tensor.nbytes for tensor in self._tensors.values())

    def add(self, tensors: Mapping[str, Tensor]) -> int:
        """Copy `tensors` into a free slot, growing if there is none; returns the slot."""
        with self._lock:
            if not self._free:
                self._grow()
            slot = self._free.pop()
            for name, bank in self._tensors.items():
                bank[slot].copy_(tensors[name])
            return slot

    def remove(self, slot: int) -> None:
        """Free `slot`; its values stay until the next adapter is written there. An empty bank holds no memory."""
        with self._lock:
            assert slot not in self._free, "a resident is removed once"
            self._free.append(slot)
            if len(self._free) == self._capacity:
                self._tensors, self._free, self._capacity = self._empty(), [], 0

    def _empty(self) -> dict[str, Tensor]:
        return {name: torch.zeros(0, *shape, device=self._device) for name, shape in self._shapes.items()}

    def gather(self, slots: Sequence[int]) -> dict[str, Tensor]:
        """The tensors of `slots` with a leading dimension of `len(slots)`; one copy a batch, none for one slot."""
        if len(slots) == 1:
            return {name: tensor[slots[0] : slots[0] + 1] for name, tensor in self._tensors.items()}
        index = torch.tensor(slots, device=self._device)
        return {name: tensor.index_select(0, index) for name, tensor in self._tensors.items()}

    def _grow(self) -> None:
        capacity = int(self._capacity * _GROWTH) + 1
        grown = {}
        for name, old in self._tensors.items():
            grown[name] = old.new_zeros(capacity, *self._shapes[name])
            grown[name][: self._capacity] = old
        self._tensors = grown
        self._free.extend(range(capacity - 1, self._capacity - 1, -1))
        self._capacity = capacity


@dataclass(frozen=True, eq=False)
class Resident:
    """One adapter version in its slots: the body acts inside the backbone, the head after an encoder; `tree` holds the
    label strings that a T5 scores."""

    manifest: Manifest
    digest: str
    nbytes: int
    body: Bank
    body_slot: int
    head: Bank
    head_slot: int
    tree: LabelTree | None = None


def head_spec(bank: Bank) -> HeadSpec:
    """The one part of a bank of heads."""
    spec = bank.parts[0]
    assert isinstance(spec, HeadSpec)
    return spec


class Banks:
    """All banks of one backbone, made as their signatures appear. Heads have banks of their own, so that tasks with
    different label counts share one slice of the encoder."""

    def __init__(self, backbone: Backbone) -> None:
        self._backbone = backbone
        self._banks: dict[Parts, Bank] = {}
        self._numbers = count()
        self._lock = threading.Lock()

    @property
    def nbytes(self) -> int:
        """Bytes that all banks hold on the device."""
        return sum(bank.nbytes for bank in self._banks.values())

    def add(self, artifact: Artifact) -> Resident:
        """Copy an artifact's tensors into its banks. Safe from any thread, also while a batch runs."""
        parts = artifact.manifest.parts
        body = self._bank(tuple(part for part in parts if part.kind != "head"))
        head = self._bank(tuple(part for part in parts if part.kind == "head"))
        return Resident(
            manifest=artifact.manifest,
            digest=artifact.digest,
            nbytes=artifact.nbytes,
            body=body,
            body_slot=body.add(artifact.tensors),
            head=head,
            head_slot=head.add(artifact.tensors),
            tree=grow_tree(artifact.manifest.task, self._backbone),
        )

    def remove(self, resident: Resident) -> None:
        """Free a resident's slots; no running batch may still hold it."""
        resident.body.remove(resident.body_slot)
        resident.head.remove(resident.head_slot)

    def _bank(self, parts: Parts) -> Bank:
        with self._lock:
            if parts not in self._banks:
                self._banks[parts] = Bank(next(self._numbers), parts, self._backbone)
            return self._banks[parts]
