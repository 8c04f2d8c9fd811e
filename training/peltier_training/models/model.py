"""The trainable form of an adapter: parameters that become served tensors, lowered to the server's own ops.

Its state dict holds the adapter alone: the backbone is not a module.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import torch
from peltier_adapters.batch.adaptation import BatchAdaptation
from peltier_adapters.batch.heads import Pooled
from peltier_adapters.ops.backend import AdapterGroup
from peltier_adapters.ops.op import Program
from peltier_adapters.ops.torch import TORCH, multiply_all
from peltier_adapters.parts import head, lower
from peltier_adapters.parts.part import under
from peltier_adapters.presets.composition import PresetSettings
from peltier_adapters.spec.parts import HeadSpec, Parts
from peltier_backbone.attention.adaptation import Projection, Sublayer
from peltier_backbone.backbone import Backbone
from peltier_backbone.decoding.targets import Targets
from peltier_backbone.linear.norm import Norm
from peltier_backbone.text.packing import Packed
from torch import Tensor, nn
from torch.nn import functional as F

from peltier_training.models.experts import Experts
from peltier_training.models.sources import create_sources


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


class TrainableAdapter(nn.Module):
    """An adapter on a frozen backbone; `served` gives the tensors of the artifact."""

    def __init__(
        self, backbone: Backbone, parts: Parts, settings: PresetSettings, *, seed: int, dropout: Dropout = NO_DROPOUT
    ) -> None:
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

    def _drawn(self, num_samples: int) -> list[dict[str, Tensor]]:
        """`served` for all samples, or a separate draw for each."""
        if not self._routes_samples:
            return [self.served()]
        drawn = {name: own.unbind() for source in self.sources for name, own in _draw(source, num_samples).items()}
        return [{name: own[sample] for name, own in drawn.items()} for sample in range(num_samples)]

    def _lower(self, drawn: Sequence[dict[str, Tensor]]) -> list[Program]:
        return [lower(self.parts, tensors, self.backbone) for tensors in drawn]

    def _adapt(self, programs: Sequence[Program], lengths: Sequence[int], samples: Sequence[int]) -> BatchAdaptation:
        """The adaptation of a pass, with one program for all samples or one for each; `samples` has the sample of each
        row."""
        groups = [AdapterGroup(len(lengths), programs[0])]
        if len(programs) > 1:
            groups = [AdapterGroup(len(list(own)), programs[sample]) for sample, own in groupby(samples)]
        if self.training and self._dropout.backbone:
            return DropoutAdaptation(self.backbone, groups, lengths, self._dropout.backbone)
        return BatchAdaptation(self.backbone, groups, lengths, TORCH)


def _draw(source: nn.Module, num: int) -> dict[str, Tensor]:
    if isinstance(source, Experts):
        return source.draw(num)
    return {name: tensor.expand(num, *tensor.shape) for name, tensor in source().items()}


class HeadedAdapter(TrainableAdapter):
    """An adapter of an encoder: packed rows to logits [rows, outputs], or [tokens, outputs] with a head of tokens."""

    @property
    def head_spec(self) -> HeadSpec:
        spec = self.parts[-1]
        assert isinstance(spec, HeadSpec)
        return spec

    def forward(self, packed: Packed) -> Tensor:
        samples = range(len(packed.lengths))
        drawn = self._drawn(len(samples))
        adaptation = self._adapt(self._lower(drawn), packed.lengths, samples)
        hidden = self.backbone.bert(packed, adaptation)
        pooled = Pooled(self.backbone.bert, packed, adaptation, hidden)(self.head_spec.pooling)
        steps = head.steps(self.head_spec, under("head.", drawn[0]))
        return multiply_all(steps, F.dropout(pooled, self._dropout.output, self.training).float())


class PairAdapter(HeadedAdapter):
    """An adapter that embeds texts: packed rows, of which neighbours are pairs, to outputs [pairs, 2, size]."""

    def forward(self, packed: Packed) -> Tensor:
        outputs = super().forward(packed)
        return outputs.view(-1, 2, outputs.shape[-1])


class TextAdapter(TrainableAdapter):
    """An adapter of a T5: packed rows, with placeholders of soft prompts in front, and decoder inputs to next-token
    logits [nodes, vocabulary]. Dropout is applied before the output layer, where T5 has its last one."""

    def forward(self, packed: Packed, targets: Targets) -> Tensor:
        samples, model = range(len(packed.lengths)), self.backbone.t5
        programs = self._lower(self._drawn(len(samples)))
        encoder = self._adapt(programs, packed.lengths, samples)
        memory = model.project_kv(packed, model.encode(packed, encoder), encoder)
        writers = [sample for sample, length in zip(samples, targets.lengths, strict=True) for _ in range(length)]
        decoder = self._adapt(programs, [1] * len(writers), writers)
        hidden = model.decode(targets, memory, decoder)
        return model.logits(F.dropout(hidden, self._dropout.output, self.training), decoder)
