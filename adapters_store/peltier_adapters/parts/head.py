"""The task's output layer over one vector for each row or token (BERT: pooler and linear; RoBERTa: dense, tanh,
linear; ModernBERT: dense, gelu, norm, linear)."""

from collections.abc import Iterator

import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.config import BackboneConfig
from peltier_backbone.linear.norm import LayerNorm
from torch import Tensor

from peltier_adapters.ops.op import AddedBias, FusedMatmul, MatmulStep, NormWeights
from peltier_adapters.parts.part import LoweringContext, PartTensors, normal
from peltier_adapters.spec.parts import HeadSpec


def init(spec: HeadSpec, backbone: Backbone, generator: torch.Generator) -> dict[str, Tensor]:
    """Fresh tensors: weights N(0, 0.02^2), biases 0, and 1 in a norm."""
    shapes = spec.shapes(backbone.config)
    return {
        name: torch.zeros(shape) if name.endswith("bias") else normal(shape, 0.02, generator)
        for name, shape in shapes.items()
    } | ({"norm.weight": torch.ones(shapes["norm.weight"])} if spec.normed else {})


def lower(
    spec: HeadSpec, tensors: PartTensors, context: LoweringContext
) -> Iterator[FusedMatmul | NormWeights | AddedBias]:
    """One op, which maps a vector [hidden] to its logits [outputs]; none without a projection. With a norm, the dense
    layer is one op and the output layer another; what calls them computes gelu and the norm between them. With terms,
    another op adds the bias [vocabulary] to a row's logits."""
    if spec.normed:
        yield FusedMatmul("head_dense", 0, (MatmulStep(tensors["dense.weight"], tensors["dense.bias"]),))
        yield NormWeights(norm_index(context.backbone.config), tensors["norm.weight"], None)
        yield FusedMatmul("normed_head", 0, (MatmulStep(tensors["weight"], tensors["bias"]),))
    elif spec.projection:
        yield FusedMatmul("head", 0, steps(spec, tensors))
    if spec.terms is not None:
        yield AddedBias("vocabulary", 0, tensors["vocabulary.bias"])


def steps(spec: HeadSpec, tensors: PartTensors) -> tuple[MatmulStep, ...]:
    """The steps of the head: x W + b, or act(x D + d) W + b with a hidden layer; none without a projection. They do not
    describe a head with a norm, which no method trains."""
    assert not spec.normed, "only imported heads have a norm"
    if not spec.projection:
        return ()
    output = MatmulStep(tensors["weight"], tensors["bias"])
    if not spec.hidden:
        return (output,)
    return MatmulStep(tensors["dense.weight"], tensors["dense.bias"], activation=spec.activation), output


def norm_index(config: BackboneConfig) -> int:
    """The number of the norm in a head: the first after those of the backbone."""
    return config.num_norms


def plain_norm(config: BackboneConfig, device: torch.device) -> LayerNorm:
    """The norm in the place of those of heads, with weights of 1 for rows whose head has none."""
    return LayerNorm(torch.ones(config.hidden_size, device=device), None, config.norm_eps)
