"""AdaMix: several copies of a projection, one drawn at random in each training pass, merged into one for serving.

AdaMix section 2; docs/methods.md#adamix: routing is per batch (or per sample), per layer and per projection; evaluation
and export use the mean of the copies.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def named_parameters(tensors: Mapping[str, Tensor]) -> nn.ParameterDict:
    """Parameters under their served names; a module attribute cannot contain the dot."""
    return nn.ParameterDict({name.replace(".", "/"): nn.Parameter(tensor) for name, tensor in tensors.items()})


def by_name(parameters: nn.ParameterDict) -> dict[str, Tensor]:
    """The inverse of `named_parameters`."""
    return {name.replace("/", "."): tensor for name, tensor in parameters.items()}


class Experts(nn.Module):
    """The copies of one projection: its tensors with a leading dimension of M in front of [S, L, …]."""

    def __init__(self, copies: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._copies = named_parameters(copies)

    def forward(self) -> dict[str, Tensor]:
        """In training one draw, [S, L, …]; in evaluation the mean of the copies."""
        if not self.training:
            return {name: copies.mean(0) for name, copies in by_name(self._copies).items()}
        return {name: drawn[0] for name, drawn in self.draw(1).items()}

    def draw(self, num: int) -> dict[str, Tensor]:
        """`num` draws, [num, S, L, …]: each a copy per site and layer, weight and bias from the same."""
        tensors = by_name(self._copies)
        copies, sites, layers = next(iter(tensors.values())).shape[:3]
        route = torch.randint(copies, (num, sites, layers))
        site, layer = torch.arange(sites)[:, None], torch.arange(layers)[None]
        return {name: tensor[route, site, layer] for name, tensor in tensors.items()}

    def fixed(self, copy: int) -> dict[str, Tensor]:
        """The same copy everywhere, [S, L, …]."""
        return {name: copies[copy] for name, copies in by_name(self._copies).items()}


def consistency_loss(first: Tensor, second: Tensor, *, rows: int | None = None, multilabel: bool = False) -> Tensor:
    """Half the symmetric KL divergence of two passes' predictions, each against the other detached
    (docs/methods.md#eq-consistency).

    Logits are [predictions, labels]; the sum is divided by `rows`, None if each row is one prediction. A text is one
    row: its divergence is the sum over its tokens. Independent labels are as many two-way distributions.
    """
    one, other = (_log_probabilities(logits, multilabel) for logits in (first, second))
    forward = F.kl_div(one, other.detach(), reduction="sum", log_target=True)
    backward = F.kl_div(other, one.detach(), reduction="sum", log_target=True)
    return 0.5 * (forward + backward) / (rows or len(first))


def _log_probabilities(logits: Tensor, multilabel: bool) -> Tensor:
    if multilabel:
        return torch.stack((F.logsigmoid(logits), F.logsigmoid(-logits)), -1)
    return logits.log_softmax(-1)
