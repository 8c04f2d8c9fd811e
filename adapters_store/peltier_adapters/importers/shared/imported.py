"""What importers make of foreign checkpoints: parts with their tensors and gates, heads, and whole adapters."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Self, TypeVar

import torch
from torch import Tensor
from torch.nn import functional as F

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.shared.checkpoint import Checkpoint
from peltier_adapters.spec.parts import Parts, PartSpec
from peltier_adapters.spec.tasks import TaskType


@dataclass(frozen=True)
class ImportedPart:
    """A part and exactly the tensors that its spec names."""

    spec: PartSpec
    tensors: Mapping[str, Tensor]

    def named(self) -> dict[str, Tensor]:
        """The tensors with the names of an artifact, `part.tensor`."""
        return {f"{self.spec.kind}.{name}": tensor for name, tensor in self.tensors.items()}


def grown(tensor: Tensor, *shape: int) -> Tensor:
    """`tensor` padded with zeros at the end of each dimension, up to `shape`, into which it must fit."""
    missing = [want - have for want, have in zip(shape, tensor.shape, strict=True)]
    if any(amount < 0 for amount in missing):  # a negative padding would remove values
        raise AdapterError(f"a tensor of shape {list(tensor.shape)} does not fit into {list(shape)}")
    return F.pad(tensor, [size for amount in reversed(missing) for size in (0, amount)])


At = TypeVar("At", bound=tuple[int, ...])


def stacked(found: Mapping[At, Tensor], leading: tuple[int, ...], shape: tuple[int, ...]) -> Tensor:
    """One tensor [*leading, *shape] of tensors by place, padded with zeros for missing and smaller ones."""
    result = torch.zeros(*leading, *shape)
    for place, tensor in found.items():
        result[place] = grown(tensor, *shape)
    return result


@dataclass(frozen=True)
class ImportedGate:
    """A linear score per token: weight [hidden], bias []."""

    weight: Tensor
    bias: Tensor


def take_gate(checkpoint: Checkpoint, name: str, hidden: int) -> ImportedGate | None:
    """The gate `name`, a linear layer with one output, or None if there is none."""
    weight = checkpoint.take_if(f"{name}.weight", 1, hidden)
    return None if weight is None else ImportedGate(weight[0], checkpoint.take(f"{name}.bias", 1)[0])


def stacked_gates(found: Mapping[At, ImportedGate], leading: tuple[int, ...], hidden: int) -> dict[str, Tensor]:
    """The gate tensors of a part; none without gates."""
    if not found:
        return {}
    return {
        "gate.weight": stacked({place: gate.weight for place, gate in found.items()}, leading, (hidden,)),
        "gate.bias": stacked({place: gate.bias for place, gate in found.items()}, leading, ()),
    }


@dataclass(frozen=True)
class SavedHead:
    """A saved head. `piece` is None if there is no head or if it is the backbone's; `labels` and `task_type` are None
    if the file does not contain them; `labels` are an error if it contradicts itself. `normalized`: its vectors get
    unit length."""

    piece: ImportedPart | None = None
    labels: tuple[str, ...] | AdapterError | None = None
    task_type: TaskType | None = None
    normalized: bool = False


@dataclass(frozen=True)
class ImportedAdapter:
    """An adapter as parts. `method` becomes the name of its preset, and `origin` is recorded for people. `head` is None
    on a T5 and if the checkpoint has none; `labels` are in the order of the head's outputs, or the error of
    `SavedHead`; `task_type` is known only from some heads; `padded` and `normalized` are as in `TaskSpec`. `pooled`: it
    adapts the pooler, which only a head of its own checkpoint can read."""

    method: str
    pieces: Sequence[ImportedPart]
    head: ImportedPart | None = None
    labels: tuple[str, ...] | AdapterError | None = None
    task_type: TaskType | None = None
    origin: dict[str, Any] = field(default_factory=dict)
    padded: bool = False
    normalized: bool = False
    pooled: bool = False

    def with_head(self, saved: SavedHead, where: Path) -> Self:
        """The adapter with a head that was saved in `where`."""
        assert saved.piece is not None, "it was found"
        if self.pooled and getattr(saved.piece.spec, "pooling", None) == "pooler":
            raise AdapterError(f"{where} has a head that reads the pooler, which the adapter changes without a head")
        return replace(
            self, head=saved.piece, labels=saved.labels, task_type=saved.task_type, normalized=saved.normalized
        )

    @property
    def parts(self) -> Parts:
        """The specs in order, the head last."""
        return tuple(piece.spec for piece in self._all())

    @property
    def tensors(self) -> dict[str, Tensor]:
        return {name: tensor for piece in self._all() for name, tensor in piece.named().items()}

    def _all(self) -> list[ImportedPart]:
        return [*self.pieces, *([self.head] if self.head is not None else [])]
