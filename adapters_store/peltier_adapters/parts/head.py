"""The task's output layer over one vector a row (BERT: pooler and linear; RoBERTa: dense, tanh, linear)."""

from collections.abc import Mapping

import torch
from peltier_backbone.load import Backbone
from torch import Tensor

from peltier_adapters.parts.part import normal
from peltier_adapters.spec import HeadSpec


def init(spec: HeadSpec, backbone: Backbone, generator: torch.Generator) -> dict[str, Tensor]:
    """Weights N(0, 0.02^2), biases 0."""
    shapes = spec.shapes(backbone.config)
    return {
        name: torch.zeros(shape) if name.endswith("bias") else normal(shape, 0.02, generator)
        for name, shape in shapes.items()
    }


def apply(spec: HeadSpec, tensors: Mapping[str, Tensor], pooled: Tensor) -> Tensor:
    """Logits of rows that share one head, in float32: [rows, hidden] -> [rows, outputs]."""
    x = pooled.float()
    if spec.hidden:
        x = torch.tanh(torch.addmm(tensors["dense.bias"].float(), x, tensors["dense.weight"].float()))
    return torch.addmm(tensors["bias"].float(), x, tensors["weight"].float())


def apply_each(tensors: Mapping[str, Tensor], pooled: Tensor) -> Tensor:
    """The same for heads without a hidden layer, each row with its own: weight [rows, hidden, outputs]."""
    weight, bias = tensors["weight"].float(), tensors["bias"].float()
    return torch.baddbmm(bias[:, None], pooled.float()[:, None], weight).squeeze(1)
