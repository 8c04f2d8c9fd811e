"""What every part module offers: `init` makes a task's tensors, a `Part` applies them to one slice of a batch."""

from dataclasses import dataclass, field

import torch
from peltier_backbone.adaptation import Norm
from peltier_backbone.attention import Prefix
from peltier_backbone.load import Backbone
from torch import Tensor

from peltier_adapters.segments import Reweighted, Segments


@dataclass(frozen=True)
class Context:
    """Where a part is applied. `gates` collects [rows] means per part and layer (T5's attentions and blocks are
    numbered over both stacks) when it is not None; `central` is the slice's central gate, weight [G, A, hidden, 2] and
    bias [G, A, 2]."""

    backbone: Backbone
    segments: Segments
    gates: dict[str, dict[int, Tensor]] | None = field(default=None)
    central: tuple[Tensor, Tensor] | None = field(default=None)

    @property
    def dtype(self) -> torch.dtype:
        """Of a part's weights; prompts and prefixes have the backbone's own."""
        return self.segments.weights_dtype


class Part:
    """One part of one slice: tensors with a leading group dimension, prepared once for all layers of a batch.

    The defaults change nothing. `y` is changed in place, `x` and `residual` never are; all are the slice's own tokens.
    """

    projections: frozenset[str] = frozenset()
    sublayers: frozenset[str] = frozenset()
    has_prefix = False
    has_norm = False
    has_prompt = False

    def project(self, layer: int, site: str, x: Tensor, y: Tensor) -> None:
        """Change a frozen projection's output y = f(x); only called for `projections`."""

    def sublayer(self, layer: int, site: str, y: Tensor, residual: Tensor, norm: Norm) -> Tensor:
        """A sub-layer's output before the residual sum; `norm` is the row's own norm that follows it. Only called for
        `sublayers`."""
        raise AssertionError("this part acts on no sub-layer")

    def prefix(self, layer: int, x: Tensor) -> Prefix | None:
        """Extra keys and values, [rows, heads, prefix, head size]."""
        return None

    def norm(self, index: int, x: Tensor, base: Reweighted, residual: Tensor | None = None) -> Tensor:
        """Norm `index` of x, or of x + residual, with the slice's own weights; only called where `has_norm`."""
        raise AssertionError("this part has no norm")

    def embed(self, x: Tensor) -> None:
        """Write soft prompts over their placeholders among the embeddings x; only called where `has_prompt`."""
        raise AssertionError("this part has no prompt")


def normal(shape: tuple[int, ...], std: float, generator: torch.Generator) -> Tensor:
    """N(0, std^2) in float32."""
    return torch.empty(shape).normal_(0.0, std, generator=generator)


def xavier(shape: tuple[int, ...], gain: float, generator: torch.Generator) -> Tensor:
    """Xavier uniform with the fan of the last two dimensions; the leading ones are independent draws."""
    bound = gain * float(6.0 / (shape[-1] + shape[-2])) ** 0.5
    return torch.empty(shape).uniform_(-bound, bound, generator=generator)
