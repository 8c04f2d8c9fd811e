"""Shared code of the part modules. Each has `init`, which draws a task's tensors, and `lower`, which makes ops."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.config import BackboneConfig
from torch import Tensor

# A part's tensors, by their names in the shapes of its spec.
PartTensors = Mapping[str, Tensor]
# The projections of an attention: three of its input, and the output projection.
AttentionMap = Literal["query", "key", "value", "output"]


@dataclass(frozen=True)
class LoweringContext:
    """The inputs of lowering. `central` is the weight and bias of UniPELT's central gate, if the adapter has one."""

    backbone: Backbone
    central: tuple[Tensor, Tensor] | None = None


def under(prefix: str, tensors: PartTensors) -> dict[str, Tensor]:
    """The tensors whose names begin with `prefix`, by the rest of their names."""
    return {name.removeprefix(prefix): one for name, one in tensors.items() if name.startswith(prefix)}


def projection(target: AttentionMap, attention: int, config: BackboneConfig) -> tuple[str, int]:
    """The backbone's projection that computes `target`, and the first column of `target` in it. Query, key and value
    are one map. T5's cross-attentions, which come after all others, read two inputs and have a separate query map."""
    if target == "output":
        return "attention_output", 0
    width = config.attention_size
    if attention < config.num_blocks:
        return "query_key_value", ("query", "key", "value").index(target) * width
    return ("query", 0) if target == "query" else ("key_value", ("key", "value").index(target) * width)


def normal(shape: tuple[int, ...], std: float, generator: torch.Generator) -> Tensor:
    """N(0, std^2) in float32."""
    return torch.empty(shape).normal_(0.0, std, generator=generator)


def xavier(shape: tuple[int, ...], gain: float, generator: torch.Generator) -> Tensor:
    """Xavier uniform with the fan of the last two dimensions; the leading ones are independent draws."""
    bound = gain * float(6.0 / (shape[-1] + shape[-2])) ** 0.5
    return torch.empty(shape).uniform_(-bound, bound, generator=generator)
