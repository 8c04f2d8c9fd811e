"""All resident adapters of one signature.

The tensors of a resident are contiguous in a separate block of memory. It is written once, before the resident is
returned, and freed with the last reference. So a batch never reads a half-written adapter or another one's weights,
and a bank grows and shrinks by one adapter without copying the others.
"""

import threading
from dataclasses import dataclass
from itertools import count
from weakref import WeakValueDictionary

import torch
from peltier_backbone.load import Backbone
from torch import Tensor

from peltier_adapters.artifact.artifact import Artifact
from peltier_adapters.artifact.label_tree import LabelTree, build_label_tree
from peltier_adapters.artifact.weights import Weights, layout_of
from peltier_adapters.parts import lower
from peltier_adapters.residency.served import build_served
from peltier_adapters.residency.transfer import DeviceCopy, PendingCopy, create_transfer
from peltier_adapters.spec.cost import AdapterCost
from peltier_adapters.spec.parts import HeadSpec, Parts, position_offset, prompt_length
from peltier_adapters.spec.served import served_parts
from peltier_adapters.spec.tasks import TaskSpec


class Bank:
    """What residents of one signature have in common. `number` orders banks; `prompt_length` and `position_offset` are
    what their rows' tokens have in front and are moved by, `cost` what they add to the backbone's work. `program` says
    what each of them does with its own weights, which `layout` finds in its flat tensor."""

    def __init__(self, number: int, parts: Parts, backbone: Backbone) -> None:
        self.number, self.parts = number, parts
        kinds = {part.kind for part in parts}
        self.has_prefix, self.has_norm = "prefix" in kinds, "norm" in kinds
        self.prompt_length, self.position_offset = prompt_length(parts), position_offset(parts)
        self.cost = AdapterCost.of(parts, backbone.config)
        self.layout = layout_of(parts, backbone.config)
        template = torch.empty(self.layout.length, device="meta")
        self.program = lower(parts, self.layout.views(template), backbone)
        self._numbers = count()

    def slot(self, sent: DeviceCopy, start: int) -> "Slot":
        """The part of `sent` from element `start` on that is this bank's, under a number that no other one ever has."""
        return Slot(next(self._numbers), sent.flat[start : start + self.layout.length], sent.arrival)


@dataclass(frozen=True, eq=False, slots=True)
class Slot:
    """One adapter's tensors in a bank, [elements] in float32; they may be on their way until `arrival`."""

    number: int
    flat: Tensor
    arrival: PendingCopy | None = None

    def read(self) -> Tensor:
        """The tensors, for whatever this thread gives the device from now on."""
        if self.arrival is not None:
            self.arrival.wait()
        return self.flat


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Resident:
    """One adapter version on the device: the body acts inside the backbone, the head after an encoder; `tree` holds the
    label strings that a T5 scores. `nbytes` is what the device gets back with its last reference."""

    task: TaskSpec
    digest: str
    nbytes: int
    body: Bank
    body_slot: Slot
    head: Bank
    head_slot: Slot
    tree: LabelTree | None = None


def head_spec(bank: Bank) -> HeadSpec:
    """The one part of a bank of heads."""
    spec = bank.parts[0]
    assert isinstance(spec, HeadSpec)
    return spec


class Banks:
    """All banks of one backbone, made as their signatures appear and gone with their last adapter. Heads have banks of
    their own, so that tasks with different label counts share one slice of the encoder."""

    def __init__(self, backbone: Backbone) -> None:
        self._backbone = backbone
        self._banks: WeakValueDictionary[Parts, Bank] = WeakValueDictionary()
        self._numbers = count()
        self._transfer = create_transfer(backbone.device)
        self._lock = threading.Lock()

    def add(self, artifact: Artifact) -> Resident:
        """Bring an artifact's tensors to the device in the form in which they are served: by one copy, which may still
        be under way, or by none where they are there already. Safe from any thread, also while a batch runs."""
        parts, tensors = served_parts(artifact.manifest.parts), artifact.tensors
        if parts != artifact.manifest.parts:
            tensors = build_served(artifact.manifest.parts, tensors, self._backbone.config)
        elif not isinstance(tensors, Weights):
            tensors = Weights.copy(layout_of(parts, self._backbone.config), tensors)
        body = self._bank(tuple(part for part in parts if part.kind != "head"))
        head = self._bank(tuple(part for part in parts if part.kind == "head"))
        sent = self._transfer(tensors)
        return Resident(
            task=artifact.manifest.task,
            digest=artifact.digest,
            nbytes=tensors.nbytes,
            body=body,
            body_slot=body.slot(sent, 0),
            head=head,
            head_slot=head.slot(sent, body.layout.length),
            tree=build_label_tree(artifact.manifest.task, self._backbone),
        )

    def _bank(self, parts: Parts) -> Bank:
        with self._lock:
            bank = self._banks.get(parts)
            if bank is None:
                bank = self._banks[parts] = Bank(next(self._numbers), parts, self._backbone)
            return bank
