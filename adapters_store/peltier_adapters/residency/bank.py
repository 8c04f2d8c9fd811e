"""Banks of resident adapters. The adapters of a bank have the same parts.

The tensors of a resident are contiguous in a separate block of memory. The block is written once, before any batch
reads it, and freed with its last reference. So a batch never reads a partly written adapter or the weights of another
adapter, and a bank grows and shrinks by one adapter without copying the others.
"""

import threading
from collections import OrderedDict
from dataclasses import dataclass
from itertools import count
from weakref import WeakValueDictionary

import torch
from peltier_backbone.backbone import Backbone
from torch import Tensor

from peltier_adapters.artifact.artifact import Artifact
from peltier_adapters.artifact.label_tree import LabelTree, build_label_tree
from peltier_adapters.artifact.weights import AdapterWeights, layout_of
from peltier_adapters.parts import lower
from peltier_adapters.residency.served import build_served, find_backend, split_head
from peltier_adapters.residency.transfer import PendingCopy, create_transfer
from peltier_adapters.spec.cost import AdapterCost
from peltier_adapters.spec.parts import HeadSpec, Parts, position_offset, prompt_length, served_parts
from peltier_adapters.spec.tasks import TaskSpec

# Banks that stay without adapters, of 6 to 8 KB each.
MAX_RECENT = 64


class Bank:
    """The common properties of adapters with the same parts.

    `number` orders banks. A row of these adapters has `prompt_length` soft tokens in front, and its positions move by
    `position_offset`. The answer of a head has `num_terms` terms, or None if it is not one of terms. `cost` is the work
    in addition to the backbone's. `program` lists the operations of an adapter, `layout` the places of their weights in
    its flat tensor, and `first_block` is where they begin in an encoder.
    """

    def __init__(self, number: int, parts: Parts, backbone: Backbone) -> None:
        self.number, self.parts = number, parts
        kinds = {part.kind for part in parts}
        self.has_prefix, self.has_norm = "prefix" in kinds, "norm" in kinds
        self.num_terms = next((part.terms for part in parts if isinstance(part, HeadSpec)), None)
        self.prompt_length, self.position_offset = prompt_length(parts), position_offset(parts)
        self.cost = AdapterCost.of(parts, backbone.config)
        self.layout = layout_of(parts, backbone.config)
        template = torch.empty(self.layout.length, device="meta")
        program = lower(parts, self.layout.views(template), backbone)
        self._kept = find_backend(parts, backbone).prepare(program, self.layout.length)
        self.program = self._kept.program
        self.first_block = self.program.first_block(backbone.config)
        self._numbers = count()

    def prepare(self, flat: Tensor) -> Tensor:
        """The weights `flat` [elements] of an adapter in the form that goes with the program."""
        return self._kept.weights(flat)

    def slot(self, flat: Tensor, arrival: PendingCopy | None = None) -> "Slot":
        """A slot with a new number for prepared weights."""
        return Slot(next(self._numbers), flat, arrival)


@dataclass(frozen=True, eq=False, slots=True)
class Slot:
    """The weights of one adapter in a bank, [elements], as the backend reads them. The copy to the device may run until
    `arrival`."""

    number: int
    flat: Tensor
    arrival: PendingCopy | None = None

    def read(self) -> Tensor:
        """The tensors, for device work that this thread submits after this call."""
        if self.arrival is not None:
            self.arrival.wait()
        return self.flat


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Resident:
    """One adapter version on the device. Its body acts inside the backbone, its head after an encoder. `tree` has the
    label strings that a T5 scores. The last reference frees up to `nbytes` of device memory."""

    task: TaskSpec
    digest: str
    nbytes: int
    body: Bank
    body_slot: Slot
    head: Bank
    head_slot: Slot
    tree: LabelTree | None = None


def head_spec(bank: Bank) -> HeadSpec:
    """The only part of a bank of heads."""
    spec = bank.parts[0]
    assert isinstance(spec, HeadSpec)
    return spec


class Banks:
    """All banks of one backbone. A bank is created for the first adapter with its parts and removed with the last one.
    The banks used last stay, because creating one takes a third of the load of an only adapter of its kind. Heads have
    separate banks, so that tasks with different label counts share one bank for their bodies."""

    def __init__(self, backbone: Backbone) -> None:
        self._backbone = backbone
        self._banks: WeakValueDictionary[Parts, Bank] = WeakValueDictionary()
        self._recent: OrderedDict[Parts, Bank] = OrderedDict()
        self._numbers = count()
        self._transfer = create_transfer(backbone.device)
        self._lock = threading.Lock()

    def add(self, artifact: Artifact) -> Resident:
        """Bring the tensors of an artifact to the device, in the form that the server uses. This takes at most one
        copy, which may still run when this call returns. Safe from any thread, also while a batch runs."""
        parts, tensors = served_parts(artifact.manifest.parts), artifact.tensors
        if parts != artifact.manifest.parts:
            tensors = build_served(artifact.manifest.parts, tensors, self._backbone.config)
        elif not isinstance(tensors, AdapterWeights):
            tensors = AdapterWeights.copy(layout_of(parts, self._backbone.config), tensors)
        body, head = map(self._bank, split_head(parts))

        def cut(flat: Tensor) -> tuple[Tensor, Tensor]:
            return body.prepare(flat[: body.layout.length]), head.prepare(flat[body.layout.length :])

        (own, own_head), arrival = self._transfer(tensors, cut)
        return Resident(
            task=artifact.manifest.task,
            digest=artifact.digest,
            nbytes=tensors.nbytes,
            body=body,
            body_slot=body.slot(own, arrival),
            head=head,
            head_slot=head.slot(own_head, arrival),
            tree=build_label_tree(artifact.manifest.task, self._backbone),
        )

    def _bank(self, parts: Parts) -> Bank:
        with self._lock:
            bank = self._banks.get(parts)
            if bank is None:
                bank = self._banks[parts] = Bank(next(self._numbers), parts, self._backbone)
            self._recent[parts] = bank
            self._recent.move_to_end(parts)
            if len(self._recent) > MAX_RECENT:
                self._recent.popitem(last=False)
            return bank
