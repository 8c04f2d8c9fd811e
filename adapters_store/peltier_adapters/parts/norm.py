"""A task's own norm weights replace the backbone's, as in Compacter and BitFit (docs/methods.md#norms)."""

from collections.abc import Iterator, Sequence

import torch
from peltier_backbone.backbone import Backbone
from torch import Tensor

from peltier_adapters.ops.op import NormWeights
from peltier_adapters.parts.part import LoweringContext, PartTensors
from peltier_adapters.spec.parts import NormSpec


def init(spec: NormSpec, backbone: Backbone, generator: torch.Generator) -> dict[str, Tensor]:
    """The backbone's own weights, and zeros if it has no bias: the first forward pass is the backbone's own."""
    tensors = {}
    for name, shape in spec.shapes(backbone.config).items():
        own = backbone_norms(name, backbone, spec.norms(backbone.config))
        tensors[name] = torch.zeros(shape) if own is None else own
    return tensors


def backbone_norms(name: str, backbone: Backbone, indices: Sequence[int]) -> Tensor | None:
    """Frozen weights or biases of the norms `indices`, [norms, hidden], in float32; None for biases that no norm of the
    backbone has."""
    if name == "bias" and not backbone.config.biased:
        return None
    norms = backbone.model.norms()
    return torch.stack([getattr(norms[index], name) for index in indices]).float()


def lower(spec: NormSpec, tensors: PartTensors, context: LoweringContext) -> Iterator[NormWeights]:
    """One op for each norm; weight is [norms, hidden], bias [biased norms, hidden]. Norms use the backbone's weight or
    bias if the task has none."""
    config = context.backbone.config
    weights = dict(zip(spec.norms(config), tensors["weight"].unbind(), strict=True)) if spec.weight else {}
    biases = dict(zip(spec.biased(config), tensors["bias"].unbind(), strict=True)) if spec.bias else {}
    for index in sorted(weights | biases):
        yield NormWeights(index, weights.get(index), biases.get(index))
