"""The task's output layer over one vector a row (BERT: pooler and linear; RoBERTa: dense, tanh, linear)."""

from collections.abc import Mapping

import torch
from peltier_backbone.load import Backbone
from peltier_backbone.native.chain import Chain, Product
from peltier_backbone.native.library import Runs, serving_library
from torch import Tensor

from peltier_adapters.parts.part import normal
from peltier_adapters.spec import HeadSpec
from peltier_adapters.tensors import Tensors


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


def apply_each(tensors: Tensors, pooled: Tensor) -> Tensor:
    """The same for heads without a hidden layer, each row with its own: weight [rows, hidden, outputs]."""
    x, native = pooled.float(), serving_library(pooled.device, torch.float32)
    if native is None:
        return torch.baddbmm(tensors["bias"].float()[:, None], x[:, None], tensors["weight"].float()).squeeze(1)
    weight, bias = (tensors.apart(name)[None] for name in ("weight", "bias"))  # one layer
    logits = torch.zeros(len(x), weight.first.shape[-1])
    Chain(native, [Product(weight, bias)], Runs([1] * len(x))).add(logits, x, 0)
    return logits
