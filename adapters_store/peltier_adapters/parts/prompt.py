"""Prompt tuning: P soft tokens in front of the encoder's input (methods.md 1.11)."""

import torch
from peltier_backbone.load import Backbone
from torch import Tensor

from peltier_adapters.parts.part import Context, Part
from peltier_adapters.spec import PromptSpec
from peltier_adapters.tensors import Tensors


def init(spec: PromptSpec, backbone: Backbone, generator: torch.Generator) -> dict[str, Tensor]:
    """PROMPT-R: uniform in (-0.5, 0.5). Training may start from the vocabulary instead (PROMPT-T, Q-C10)."""
    shape = spec.shapes(backbone.config)["weight"]
    return {"weight": torch.empty(shape).uniform_(-0.5, 0.5, generator=generator)}


class Prompt(Part):
    """Prompts of one slice, weight [G, P, hidden]; each row begins with P placeholder tokens, which these replace."""

    has_prompt = True

    def __init__(self, spec: PromptSpec, tensors: Tensors, context: Context) -> None:
        self._weight, self._segments = tensors["weight"].to(context.backbone.dtype), context.segments

    def embed(self, x: Tensor) -> None:
        segments, length = self._segments, self._weight.shape[1]
        lengths = torch.tensor(segments.row_lengths, device=x.device)
        starts = lengths.cumsum(0) - lengths
        places = starts[:, None] + torch.arange(length, device=x.device)
        x[places.view(-1)] = self._weight.index_select(0, segments.groups).flatten(0, 1)
