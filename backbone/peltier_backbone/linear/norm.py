"""Layer normalisations with frozen weights."""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class LayerNorm:
    """LayerNorm over the last dimension; `weight` is [hidden], and so is the `bias` if there is one."""

    weight: Tensor
    bias: Tensor | None
    eps: float
    centered: ClassVar[bool] = True

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        return self.with_weights(x if residual is None else x + residual, self.weight, self.bias)

    def with_weights(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """The same norm with other weights, each [hidden]."""
        return F.layer_norm(x, weight.shape, weight, bias, self.eps)


@dataclass(frozen=True)
class RMSNorm:
    """weight * x / sqrt(mean(x^2) + eps) over the last dimension, the mean in float32 (Zhang and Sennrich 2019)."""

    weight: Tensor
    eps: float
    bias: ClassVar[None] = None
    centered: ClassVar[bool] = False

    def __call__(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        return self.with_weights(x if residual is None else x + residual, self.weight)

    def with_weights(self, x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        """The same norm with other weights [hidden], and the bias that BitFit adds."""
        y = F.rms_norm(x, weight.shape, weight, self.eps)
        return y if bias is None else y + bias


# A norm of x [tokens, width], or of x + residual.
Norm = LayerNorm | RMSNorm
