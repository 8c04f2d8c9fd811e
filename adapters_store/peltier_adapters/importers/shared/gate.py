"""Gates of foreign checkpoints, and the gate tensors of a part."""

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from peltier_adapters.importers.shared.checkpoint import Checkpoint
from peltier_adapters.importers.shared.imported_part import At, stacked


@dataclass(frozen=True)
class Gate:
    """A linear score per token: weight [hidden], bias []."""

    weight: Tensor
    bias: Tensor


def take_gate(checkpoint: Checkpoint, name: str, hidden: int) -> Gate | None:
    """The gate `name`, a linear layer with one output, or None if there is none."""
    weight = checkpoint.take_if(f"{name}.weight", 1, hidden)
    return None if weight is None else Gate(weight[0], checkpoint.take(f"{name}.bias", 1)[0])


def stacked_gates(found: Mapping[At, Gate], leading: tuple[int, ...], hidden: int) -> dict[str, Tensor]:
    """The gate tensors of a part; none without gates."""
    if not found:
        return {}
    return {
        "gate.weight": stacked({place: gate.weight for place, gate in found.items()}, leading, (hidden,)),
        "gate.bias": stacked({place: gate.bias for place, gate in found.items()}, leading, ()),
    }
