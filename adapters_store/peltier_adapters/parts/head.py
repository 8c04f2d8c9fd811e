"""The task's output layer over one vector for each row or token (BERT: pooler and linear; RoBERTa: dense, tanh,
linear)."""

from collections.abc import Iterator

import torch
from peltier_backbone.backbone import Backbone
from torch import Tensor

from peltier_adapters.ops.op import FusedMatmul, MatmulStep
from peltier_adapters.parts.part import LoweringContext, PartTensors, normal
from peltier_adapters.spec.parts import HeadSpec


def init(spec: HeadSpec, backbone: Backbone, generator: torch.Generator) -> dict[str, Tensor]:
    """Fresh tensors: weights N(0, 0.02^2), biases 0."""
    shapes = spec.shapes(backbone.config)
    return {
        name: torch.zeros(shape) if name.endswith("bias") else normal(shape, 0.02, generator)
        for name, shape in shapes.items()
    }


def lower(spec: HeadSpec, tensors: PartTensors, context: LoweringContext) -> Iterator[FusedMatmul]:
    """One op, which maps a vector [hidden] to its logits [outputs]; none without a projection."""
    if spec.projection:
        yield FusedMatmul("head", 0, steps(spec, tensors))


def steps(spec: HeadSpec, tensors: PartTensors) -> tuple[MatmulStep, ...]:
    """The steps of the head: x W + b, or act(x D + d) W + b with a hidden layer; none without a projection."""
    if not spec.projection:
        return ()
    output = MatmulStep(tensors["weight"], tensors["bias"])
    if not spec.hidden:
        return (output,)
    return MatmulStep(tensors["dense.weight"], tensors["dense.bias"], activation=spec.activation), output
