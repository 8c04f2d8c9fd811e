"""T5's feed-forward sub-layer, gated (v1.1) or not (v1.0)."""

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor
from torch.nn import functional as F

from peltier_backbone.adaptation import Adaptation
from peltier_backbone.linear import Linear
from peltier_backbone.norm import RMSNorm
from peltier_backbone.t5_config import Activation

_ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "silu": F.silu,
}


@dataclass(frozen=True)
class FeedForward:
    """x + output(activation(intermediate(norm(x)))); a gated `intermediate` projects to what is activated, then to what
    that is multiplied with.
    """

    block: int
    norm_index: int
    norm: RMSNorm
    intermediate: Linear
    output: Linear
    activation: Activation
    gated: bool

    def __call__(self, x: Tensor, adaptation: Adaptation) -> Tensor:
        """[tokens, hidden] -> [tokens, hidden]."""
        inner = self._expand(adaptation.norm(self.norm_index, x, self.norm), adaptation)
        y = adaptation.project(self.block, "output", inner, self.output(inner))
        return x + adaptation.sublayer(self.block, "ffn", y, x)

    def _expand(self, x: Tensor, adaptation: Adaptation) -> Tensor:
        """[tokens, hidden] -> [tokens, intermediate]."""
        if self.activation == "relu" and not self.gated and "intermediate" not in adaptation.projections:
            return self.intermediate.relu(x)
        y = adaptation.project(self.block, "intermediate", x, self.intermediate(x))
        activate = _ACTIVATIONS[self.activation]
        if not self.gated:
            return activate(y)
        activated, factor = y.chunk(2, -1)
        return activate(activated) * factor
