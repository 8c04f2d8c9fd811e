"""Twins of an adapter, as near to it as rounding is: their answers tell how far rounding moves its answers.

From the first adapted sub-layer on a twin has other values, which are rounded otherwise, in the backbone as well. So
the answers of twins scatter as rounding makes them scatter: Monte Carlo arithmetic (Parker, UCLA CSD-970002, 1997),
with the adapter's weights as what is perturbed.
"""

import torch
from peltier_backbone.load import Backbone
from torch import Tensor

from peltier_adapters.artifact.artifact import Artifact

# One rounding to the 8 bits of bfloat16.
UNIT = 2.0**-8
# With three or four examples, as artifacts have them, these tell the scatter to a fifth of itself.
_NUM_TWINS = 4


def num_twins(backbone: Backbone) -> int:
    """How many are run; none in float32, whose rounding is far below any difference that matters."""
    return 0 if backbone.dtype == torch.float32 else _NUM_TWINS


def create_twin(artifact: Artifact, number: int) -> Artifact:
    """The adapter with every weight moved by one rounding, up or down by lot; for one number always the same."""
    generator = torch.Generator().manual_seed(number)
    tensors = {name: _moved(tensor, generator) for name, tensor in artifact.tensors.items()}
    return Artifact(artifact.manifest, tensors, f"{artifact.digest}/twin-{number}")


def _moved(tensor: Tensor, generator: torch.Generator) -> Tensor:
    signs = torch.randint(0, 2, tensor.shape, generator=generator) * 2 - 1
    return tensor * (1 + UNIT * signs)
