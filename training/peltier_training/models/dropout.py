"""Dropout in the frozen backbone during training, as full fine-tuning has it."""

from collections.abc import Sequence
from dataclasses import dataclass

from peltier_adapters.batch.adaptation import BatchAdaptation
from peltier_adapters.ops.backend import AdapterGroup
from peltier_adapters.ops.torch import TORCH
from peltier_backbone.attention.adaptation import Projection, Sublayer
from peltier_backbone.backbone import Backbone
from peltier_backbone.linear.norm import Norm
from torch import Tensor
from torch.nn import functional as F


@dataclass(frozen=True)
class Dropout:
    """The rates of a training: before the `output` layer, and in the `backbone` (`DropoutAdaptation`)."""

    output: float = 0.0
    backbone: float = 0.0


NO_DROPOUT = Dropout()


class DropoutAdaptation(BatchAdaptation):
    """The adaptation of a training pass that sets elements to zero with probability `rate`: of the embeddings, of a T5
    encoder's states, and of each sub-layer's output, after its adapter and before the residual is added (Vaswani et al.
    2017, section 5.4).

    Models of transformers also drop attention weights, and in T5 the decoder's embeddings and the inner states of
    feed-forward layers. Their DistilBERT drops no output of an attention.
    """

    def __init__(self, backbone: Backbone, groups: Sequence[AdapterGroup], lengths: Sequence[int], rate: float) -> None:
        super().__init__(backbone, groups, lengths, TORCH)
        config = backbone.config
        self._rate = rate
        self._cross_attentions = range(config.num_blocks, config.num_attentions)
        self._dropped_norm = 2 * config.num_layers if config.generates else 0

    def embed(self, x: Tensor) -> Tensor:
        return self._drop(super().embed(x))

    def project(self, number: int, site: Projection, x: Tensor, y: Tensor) -> Tensor:
        y = super().project(number, site, x, y)
        # The output of cross-attention is no `sublayer`.
        return self._drop(y) if site == "attention_output" and number in self._cross_attentions else y

    def sublayer(self, block: int, site: Sublayer, y: Tensor, residual: Tensor) -> Tensor:
        return self._drop(super().sublayer(block, site, y, residual))

    def norm(self, index: int, x: Tensor, base: Norm, residual: Tensor | None = None) -> Tensor:
        y = super().norm(index, x, base, residual)
        return self._drop(y) if index == self._dropped_norm else y

    def _drop(self, x: Tensor) -> Tensor:
        return F.dropout(x, self._rate)
