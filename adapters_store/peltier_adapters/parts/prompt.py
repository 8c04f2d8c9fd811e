"""Prompt tuning: P soft tokens in front of the encoder's input (Lester et al. 2021; docs/methods/prompt.md)."""

from collections.abc import Iterator

import torch
from peltier_backbone.backbone import Backbone
from torch import Tensor

from peltier_adapters.ops.op import PromptRows
from peltier_adapters.parts.part import LoweringContext, PartTensors
from peltier_adapters.spec.parts import PromptSpec


def init(spec: PromptSpec, backbone: Backbone, generator: torch.Generator) -> dict[str, Tensor]:
    """Fresh embeddings, uniform in (-0.5, 0.5). Training may start from the vocabulary instead."""
    shape = spec.shapes(backbone.config)["weight"]
    return {"weight": torch.empty(shape).uniform_(-0.5, 0.5, generator=generator)}


def lower(spec: PromptSpec, tensors: PartTensors, context: LoweringContext) -> Iterator[PromptRows]:
    """One op: the weight [P, hidden] replaces the embeddings of the P placeholders at the beginning of a row."""
    yield PromptRows(tensors["weight"])
