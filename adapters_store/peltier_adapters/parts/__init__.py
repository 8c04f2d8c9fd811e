"""The parts of adapters, one module for each; `PARTS` is their registry."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from peltier_backbone.backbone import Backbone
from torch import Tensor

from peltier_adapters.errors import AdapterError
from peltier_adapters.ops.op import Op, Program
from peltier_adapters.parts import bias, bottleneck, gate, head, lora, norm, prefix, prompt, scale, vera
from peltier_adapters.parts.part import LoweringContext, PartTensors, under
from peltier_adapters.spec.parts import Parts, pooler_users

__all__ = ["PARTS", "PartKind", "init_tensors", "lower"]


@dataclass(frozen=True)
class PartKind:
    """How a part's tensors are initialised, and how they lower to ops (None for the central gate, which is part of the
    ops of LoRA and of the prefix)."""

    init: Callable[[Any, Backbone, torch.Generator], dict[str, Tensor]]
    lower: Callable[[Any, PartTensors, LoweringContext], Iterable[Op]] | None


PARTS = {
    "bottleneck": PartKind(bottleneck.init, bottleneck.lower),
    "lora": PartKind(lora.init, lora.lower),
    "vera": PartKind(vera.init, vera.lower),
    "prefix": PartKind(prefix.init, prefix.lower),
    "central_gate": PartKind(gate.init_central, None),
    "prompt": PartKind(prompt.init, prompt.lower),
    "bias": PartKind(bias.init, bias.lower),
    "norm": PartKind(norm.init, norm.lower),
    "scale": PartKind(scale.init, scale.lower),
    "head": PartKind(head.init, head.lower),
}


def lower(parts: Parts, tensors: PartTensors, backbone: Backbone) -> Program:
    """The program of an adapter of these parts; `tensors` are all its tensors, named `part.tensor`."""
    found = tensors.get("central_gate.weight"), tensors.get("central_gate.bias")
    context = LoweringContext(backbone, None if found[0] is None or found[1] is None else (found[0], found[1]))
    return Program(_lower(parts, tensors, context), backbone.config.num_attentions)


def _lower(parts: Parts, tensors: PartTensors, context: LoweringContext) -> Iterator[Op]:
    for part in parts:
        kind = PARTS[part.kind]
        if kind.lower is not None:
            yield from kind.lower(part, under(f"{part.kind}.", tensors), context)


def init_tensors(parts: Parts, backbone: Backbone, generator: torch.Generator) -> dict[str, Tensor]:
    """Fresh float32 tensors of a whole adapter, named `part.tensor`."""
    lacks_pooler = not backbone.config.generates and backbone.bert.pooler is None
    users = pooler_users(parts) if lacks_pooler else []
    if users:
        raise AdapterError(
            f"part {users[0]!r} needs a pooler, which backbone {backbone.name!r} does not have; set pooling to 'first' "
            "or 'mean'"
        )
    return {
        f"{part.kind}.{name}": tensor
        for part in parts
        for name, tensor in PARTS[part.kind].init(part, backbone, generator).items()
    }
