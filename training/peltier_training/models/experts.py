"""AdaMix: several copies of a projection. Each training pass draws one at random; serving uses their mean.

AdaMix section 2; docs/methods/adamix.md: routing is per batch (or per sample), per layer and per projection; evaluation
and export use the mean of the copies.
"""

from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from peltier_training.models.stream import Stream


def named_parameters(tensors: Mapping[str, Tensor]) -> nn.ParameterDict:
    """Parameters under their served names, with "/" for "." because module attributes cannot contain dots."""
    return nn.ParameterDict({name.replace(".", "/"): nn.Parameter(tensor) for name, tensor in tensors.items()})


def by_name(parameters: nn.ParameterDict) -> dict[str, Tensor]:
    """The inverse of `named_parameters`."""
    return {name.replace("/", "."): tensor for name, tensor in parameters.items()}


class Experts(nn.Module):
    """The copies of one projection: its tensors with a leading dimension of M in front of [S, L, …]."""

    def __init__(self, copies: Mapping[str, Tensor]) -> None:
        super().__init__()
        self._copies = named_parameters(copies)

    def forward(self, stream: Stream | None = None) -> dict[str, Tensor]:
        """In training one draw, [S, L, …]; in evaluation the mean of the copies."""
        if not self.training:
            return {name: copies.mean(0) for name, copies in by_name(self._copies).items()}
        return {name: drawn[0] for name, drawn in self.draw(1, stream or Stream()).items()}

    def draw(self, num: int, stream: Stream) -> dict[str, Tensor]:
        """`num` draws, [num, S, L, …]: one copy per site and layer, the same for weight and bias."""
        tensors = by_name(self._copies)
        copies, sites, layers = next(iter(tensors.values())).shape[:3]
        route = stream.routes(copies, (num, sites, layers))
        site, layer = torch.arange(sites)[:, None], torch.arange(layers)[None]
        return {name: tensor[route, site, layer] for name, tensor in tensors.items()}

    def fixed(self, copy: int) -> dict[str, Tensor]:
        """The same copy everywhere, [S, L, …]."""
        return {name: copies[copy] for name, copies in by_name(self._copies).items()}


def consistency_loss(first: Tensor, second: Tensor, *, rows: int | None = None, multilabel: bool = False) -> Tensor:
    """Half the symmetric KL divergence of two passes' predictions, each against the other detached
    (docs/methods/adamix.md#eq-consistency).

    Logits are [predictions, labels]. The sum is divided by `rows`, None if each row is one prediction. A text is one
    row, and its divergence the sum over its tokens. Each independent label is a two-way distribution.
    """
    p, q = (_log_probabilities(logits, multilabel) for logits in (first, second))
    forward = F.kl_div(p, q.detach(), reduction="sum", log_target=True)
    backward = F.kl_div(q, p.detach(), reduction="sum", log_target=True)
    return 0.5 * (forward + backward) / (rows or len(first))


def _log_probabilities(logits: Tensor, multilabel: bool) -> Tensor:
    if multilabel:
        return torch.stack((F.logsigmoid(logits), F.logsigmoid(-logits)), -1)
    return logits.log_softmax(-1)
