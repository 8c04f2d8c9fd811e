"""Twins of an adapter: copies whose weights differ by one rounding. Their outputs show the effect of rounding errors.

From the first adapted sub-layer on, a twin has slightly different values, which round differently, also in the
backbone. So the outputs of twins scatter as much as rounding makes them. This is Monte Carlo arithmetic (Parker, UCLA
CSD-970002, 1997) with perturbed weights of the adapter.
"""

import torch
from peltier_backbone.backbone import Backbone
from torch import Tensor

from peltier_adapters.artifact.artifact import Artifact
from peltier_adapters.spec.parts import tensor_shapes

# One rounding to the 8 bits of bfloat16. In int8 it is enough to move activations across the edges of their steps.
_UNIT = 2.0**-8
# With the three or four examples of an artifact, these estimate the scatter with an error of a fifth.
_NUM_TWINS = 4


def num_twins(backbone: Backbone) -> int:
    """The number of twins to run; none in float32, where rounding errors are negligible."""
    return 0 if backbone.precision == "float32" else _NUM_TWINS


def create_twin(backbone: Backbone, artifact: Artifact, number: int) -> Artifact:
    """The adapter with every weight moved by one rounding, up or down at random; `number` is the seed."""
    generator = torch.Generator().manual_seed(number)
    # In the order of the parts, whatever the order in memory is, so that all releases draw the same twins.
    names = tensor_shapes(artifact.manifest.parts, backbone.config)
    tensors = {name: _moved(artifact.tensors[name], generator) for name in names}
    return Artifact(artifact.manifest, tensors, f"{artifact.digest}/twin-{number}")


def _moved(tensor: Tensor, generator: torch.Generator) -> Tensor:
    signs = torch.randint(0, 2, tensor.shape, generator=generator) * 2 - 1
    return tensor * (1 + _UNIT * signs)
