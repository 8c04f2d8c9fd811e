"""The trainable form of an adapter: parameters that become served tensors, applied by the server's own parts.

Its state dict holds the adapter alone: the backbone is not a module.
"""

from collections.abc import Sequence

import torch
from peltier_adapters.batch import Pooled
from peltier_adapters.composition import Settings
from peltier_adapters.mixture import Layout, Mixture, Slice, create_slice
from peltier_adapters.parts import head
from peltier_adapters.spec import HeadSpec, Parts
from peltier_adapters.tensors import Tensors
from peltier_backbone.load import Backbone
from peltier_backbone.packing import Packed
from torch import Tensor, nn
from torch.nn import functional as F

from peltier_training.models.experts import Experts
from peltier_training.models.sources import create_sources


class TrainableAdapter(nn.Module):
    """An adapter on a frozen backbone; `served` gives the tensors of the artifact."""

    def __init__(self, backbone: Backbone, parts: Parts, settings: Settings, *, dropout: float, seed: int) -> None:
        super().__init__()
        self.backbone, self.parts, self.settings, self._dropout = backbone, parts, settings, dropout
        self.sources = create_sources(backbone, parts, settings, seed)

    @property
    def is_mixture(self) -> bool:
        """Whether two passes in training differ by their routes."""
        return any(isinstance(source, Experts) for source in self.sources)

    @torch.no_grad()
    def merged(self) -> dict[str, Tensor]:
        """Artifact tensors: experts averaged, prefixes evaluated."""
        self.eval()
        return {name: tensor.detach().clone() for name, tensor in self.served().items()}

    def served(self) -> dict[str, Tensor]:
        """Artifact tensors of this pass: routed in training, merged in evaluation; differentiable."""
        return {name: tensor for source in self.sources for name, tensor in source().items()}

    @property
    def _routes_samples(self) -> bool:
        return self.training and self.settings.get("routing") == "sample"

    def _grouped(self, num_samples: int) -> Tensors:
        """`served` with a leading group dimension: one group, or each sample's own draw."""
        if not self._routes_samples:
            return Tensors({name: tensor[None] for name, tensor in self.served().items()})
        drawn = [_draw(source, num_samples) for source in self.sources]
        return Tensors({name: tensor for own in drawn for name, tensor in own.items()})

    def _slice(self, layout: Layout, tensors: Tensors, samples: Sequence[int]) -> Slice:
        """The one slice of a pass; `samples` says whose each row of the layout is."""
        groups = samples if self._routes_samples else [0] * len(samples)
        return create_slice(self.backbone, layout, 0, groups, self.parts, tensors)


def _draw(source: nn.Module, num: int) -> dict[str, Tensor]:
    if isinstance(source, Experts):
        return source.draw(num)
    return {name: tensor.expand(num, *tensor.shape) for name, tensor in source().items()}


class HeadedAdapter(TrainableAdapter):
    """An adapter of an encoder: packed rows to logits [rows, outputs]."""

    @property
    def head_spec(self) -> HeadSpec:
        """The last part."""
        spec = self.parts[-1]
        assert isinstance(spec, HeadSpec)
        return spec

    def center(self, mean: float) -> None:
        """Start a regression at the mean of its targets."""
        for name, parameter in self.named_parameters():
            if name.endswith("head/bias"):
                nn.init.constant_(parameter, mean)

    def forward(self, packed: Packed) -> Tensor:
        samples = range(len(packed.lengths))
        tensors = self._grouped(len(samples))
        rows = self._slice(packed, tensors, samples)
        hidden = self.backbone.bert(packed, Mixture(self.backbone, [rows]))
        pooled = Pooled(self.backbone, packed, [rows], hidden)(self.head_spec.pooling)
        own = {name.removeprefix("head."): t[0] for name, t in tensors.items() if name.startswith("head.")}
        return head.apply(self.head_spec, own, F.dropout(pooled, self._dropout, self.training))
