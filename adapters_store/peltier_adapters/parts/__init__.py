"""One module a part; `PARTS` is the registry line of each."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from peltier_backbone.load import Backbone
from torch import Tensor

from peltier_adapters.errors import AdapterError
from peltier_adapters.parts import bias, bottleneck, central_gate, head, lora, norm, prefix, prompt
from peltier_adapters.parts.part import Context, Part
from peltier_adapters.spec import Parts, pooler_users

__all__ = ["PARTS", "Context", "Part", "PartKind", "init_tensors"]


@dataclass(frozen=True)
class PartKind:
    """How tensors of a part are drawn, and what applies them (None for the head, which follows the
    encoder, and for the central gate, which LoRA and the prefix read)."""

    init: Callable[[Any, Backbone, torch.Generator], dict[str, Tensor]]
    apply: Callable[[Any, Any, Context], Part] | None


PARTS = {
    "bottleneck": PartKind(bottleneck.init, bottleneck.Bottleneck),
    "lora": PartKind(lora.init, lora.Lora),
    "prefix": PartKind(prefix.init, prefix.Prefix),
    "central_gate": PartKind(central_gate.init, None),
    "prompt": PartKind(prompt.init, prompt.Prompt),
    "bias": PartKind(bias.init, bias.Bias),
    "norm": PartKind(norm.init, norm.Norm),
    "head": PartKind(head.init, None),
}


def _lacks_pooler(backbone: Backbone) -> bool:
    return not backbone.config.generates and backbone.bert.pooler is None


def init_tensors(parts: Parts, backbone: Backbone, generator: torch.Generator) -> dict[str, Tensor]:
    """Fresh float32 tensors of a whole adapter, named `part.tensor`."""
    users = pooler_users(parts) if _lacks_pooler(backbone) else []
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
