"""The trainable form of an adapter: parameters that become served tensors, lowered to the server's own ops.

Its state dict holds the adapter alone: the backbone is not a module.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
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
from peltier_backbone.attention.adaptation import NO_ADAPTATION, Adaptation, Projection, Sublayer
from peltier_backbone.backbone import Backbone
from peltier_backbone.decoding.targets import Targets
from peltier_backbone.linear.norm import Norm
from peltier_backbone.text.packing import Encoded, Packed
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence

from peltier_training.models.sources import Experts, Stream, create_sources
from peltier_training.models.vocabulary import largest_logits, start_at_tokens

# Of the states of lower blocks. 1.5 KB a token on MiniLM: 350,000 tokens.
_MAX_BYTES = 512 * 2**20


class LowerBlocks:
    """The first `num` blocks of a frozen encoder and what is before them, without dropout: `num` is below the number of
    blocks. The states of a row are the same in every epoch.

    Keeps the states of at most `max_bytes`; those of further rows are computed again.
    """

    def __init__(self, backbone: Backbone, num: int, max_bytes: int = _MAX_BYTES) -> None:
        self.num = num
        self._backbone = backbone
        self._kept: dict[Encoded, Tensor] = {}
        self._bytes_left = max_bytes

    def states(self, rows: Sequence[Encoded]) -> Tensor:
        """The states after these blocks, [tokens of all rows, hidden]. They have no gradient."""
        missing = [row for row in dict.fromkeys(rows) if row not in self._kept]
        computed = dict(zip(missing, self._compute(missing), strict=True)) if missing else {}
        found = torch.cat([computed[row] if row in computed else self._kept[row] for row in rows])
        for row, own in computed.items():
            self._keep(row, own)
        return found

    def finish(self, states: Tensor, packed: Packed, adaptation: Adaptation) -> Tensor:
        """The states after the last block, [tokens, hidden]."""
        return self._backbone.bert.advance(states, packed, adaptation, self._upper)

    @property
    def _upper(self) -> range:
        return range(self.num, self._backbone.config.num_layers)

    @torch.no_grad()
    def _compute(self, rows: Sequence[Encoded]) -> Sequence[Tensor]:
        packed, bert = self._backbone.pack(list(rows)), self._backbone.bert
        states = bert.advance(bert.embed(packed, NO_ADAPTATION), packed, NO_ADAPTATION, range(self.num))
        return torch.split(states, list(packed.lengths))

    def _keep(self, row: Encoded, states: Tensor) -> None:
        size = states.numel() * states.element_size()
        if size <= self._bytes_left:
            # Without the states of the other rows of the pass.
            self._kept[row] = states.clone()
            self._bytes_left -= size


@dataclass(frozen=True)
class Dropout:
    """The rates of a training: before the `output` layer, and in the `backbone` (`DropoutAdaptation`)."""

    output: float = 0.0
    backbone: float = 0.0


NO_DROPOUT = Dropout()


class DropoutAdaptation(BatchAdaptation):
    """The adaptation of a training pass that sets elements to zero with probability `rate`: of the embeddings, of a T5
    encoder's states, and of each sub-layer's output, after its adapter and before the residual is added (Vaswani et al.
    2017, section 5.4). `stream` draws them.

    Models of transformers have some other places (docs/guides/train.md#dropout-in-the-backbone).
    """

    def __init__(
        self, backbone: Backbone, groups: Sequence[AdapterGroup], lengths: Sequence[int], rate: float, stream: Stream
    ) -> None:
        super().__init__(backbone, groups, lengths, TORCH)
        config = backbone.config
        self._rate, self._stream = rate, stream
        self._cross_attentions = range(config.num_blocks, config.num_attentions)
        # The norm of the embeddings, before all blocks; without one `embed` has them.
        norm_of_embeddings = 0 if config.place_norm(0) < 0 else None
        self._dropped_norm = 2 * config.num_layers if config.generates else norm_of_embeddings

    def embed(self, x: Tensor) -> Tensor:
        return self._drop(super().embed(x))

    def project(self, number: int, site: Projection, x: Tensor, y: Tensor) -> Tensor:
        y = super().project(number, site, x, y)
        # The output of a cross-attention is no `sublayer`.
        return self._drop(y) if site == "attention_output" and number in self._cross_attentions else y

    def sublayer(self, block: int, site: Sublayer, y: Tensor, residual: Tensor) -> Tensor:
        return self._drop(super().sublayer(block, site, y, residual))

    def norm(self, index: int, x: Tensor, base: Norm, residual: Tensor | None = None) -> Tensor:
        y = super().norm(index, x, base, residual)
        return self._drop(y) if index == self._dropped_norm else y

    def _drop(self, x: Tensor) -> Tensor:
        return self._stream.drop(x, self._rate)


@dataclass(frozen=True)
class Pass:
    """One pass of an encoder's adapter over some rows: its adaptation, the tensors of its head, and its random
    numbers."""

    adaptation: DropoutAdaptation
    head: dict[str, Tensor]
    stream: Stream


class TrainableAdapter(nn.Module):
    """An adapter on a frozen backbone; `served` gives the tensors of the artifact."""

    def __init__(
        self, backbone: Backbone, parts: Parts, settings: PresetSettings, *, seed: int, dropout: Dropout = NO_DROPOUT
    ) -> None:
        super().__init__()
        self.backbone, self.parts, self.settings, self._dropout = backbone, parts, settings, dropout
        self.sources = create_sources(backbone, parts, settings, seed)
        # Of the next pass; None draws from torch's global generator.
        self.stream: Stream | None = None

    @property
    def is_mixture(self) -> bool:
        """Whether two passes in training differ by their routes."""
        return any(isinstance(source, Experts) for source in self.sources)

    @torch.no_grad()
    def merged(self) -> dict[str, Tensor]:
        """Artifact tensors: experts averaged, prefixes evaluated."""
        self.eval()
        return {name: tensor.detach().clone() for name, tensor in self.served().items()}

    def served(self, stream: Stream | None = None) -> dict[str, Tensor]:
        """Artifact tensors of this pass: routed in training, merged in evaluation; differentiable."""
        found: dict[str, Tensor] = {}
        for source in self.sources:
            found |= source(stream) if isinstance(source, Experts) else source()
        return found

    @property
    def _routes_samples(self) -> bool:
        return self.training and self.settings.get("routing") == "sample"

    def _drawn(self, num_samples: int, stream: Stream) -> list[dict[str, Tensor]]:
        """`served` for all samples, or a separate draw for each."""
        if not self._routes_samples:
            return [self.served(stream)]
        draws = [_draw(source, num_samples, stream) for source in self.sources]
        drawn = {name: own.unbind() for draw in draws for name, own in draw.items()}
        return [{name: own[sample] for name, own in drawn.items()} for sample in range(num_samples)]

    def _lower(self, drawn: Sequence[dict[str, Tensor]]) -> list[Program]:
        return [lower(self.parts, tensors, self.backbone) for tensors in drawn]

    def _adapt(
        self, programs: Sequence[Program], lengths: Sequence[int], samples: Sequence[int], stream: Stream
    ) -> DropoutAdaptation:
        """The adaptation of a pass, with one program for all samples or one for each; `samples` has the sample of each
        row."""
        groups = [AdapterGroup(len(lengths), programs[0])]
        if len(programs) > 1:
            groups = [AdapterGroup(len(list(own)), programs[sample]) for sample, own in groupby(samples)]
        return DropoutAdaptation(self.backbone, groups, lengths, self._dropout.backbone * self.training, stream)

    def _drop_output(self, x: Tensor, stream: Stream) -> Tensor:
        """The dropout before the output layer."""
        return stream.drop(x, self._dropout.output * self.training)


def _draw(source: nn.Module, num: int, stream: Stream) -> dict[str, Tensor]:
    if isinstance(source, Experts):
        return source.draw(num, stream)
    return {name: tensor.expand(num, *tensor.shape) for name, tensor in source().items()}


class HeadedAdapter(TrainableAdapter):
    """An adapter of an encoder: packed rows to logits [rows, outputs], or [tokens, outputs] with a head of tokens."""

    def start(self, rows: Sequence[Encoded]) -> None:
        """Set the head of a sparse embedding to what fits the training `rows`; other heads start as they are drawn."""
        if self.head_spec.terms is not None:
            start_at_tokens(under("head.", self.served()), rows, self.backbone)

    @property
    def head_spec(self) -> HeadSpec:
        spec = self.parts[-1]
        assert isinstance(spec, HeadSpec)
        return spec

    def forward(self, packed: Packed, states: Tensor | None = None, *, related: bool = True) -> Tensor:
        """`states` are those of the rows after `lower_blocks`, if there are such blocks. Without `related` the outputs
        are those that `relate` takes."""
        samples, stream = range(len(packed.lengths)), self.stream or Stream()
        drawn = self._drawn(len(samples), stream)
        own = Pass(self._adapt(self._lower(drawn), packed.lengths, samples, stream), drawn[0], stream)
        outputs = self.represent(own, packed, self._last_states(packed, own.adaptation, states))
        return self.relate(outputs, packed.lengths) if related else outputs

    @cached_property
    def lower_blocks(self) -> LowerBlocks | None:
        """The blocks below the first one in which the adapter acts; None if it acts from the start on."""
        with torch.no_grad():
            (program,) = self._lower([self.served(Stream(0))])
        num = min(program.first_block(self.backbone.config), self.backbone.config.num_layers - 1)
        return LowerBlocks(self.backbone, num) if num > 0 else None

    def _last_states(self, packed: Packed, adaptation: Adaptation, states: Tensor | None) -> Tensor:
        """The states of the last layer, from those after the lower blocks or from the start; each [tokens, hidden]."""
        if self.lower_blocks is None or states is None:
            return self.backbone.bert(packed, adaptation)
        return self.lower_blocks.finish(states, packed, adaptation)

    def relate(self, outputs: Tensor, lengths: Sequence[int]) -> Tensor:
        """What a loss reads of the outputs of all rows of a batch, which have these lengths in tokens."""
        return outputs

    def represent(self, own: Pass, packed: Packed, hidden: Tensor) -> Tensor:
        """The outputs of the rows, each of which depends on its row alone."""
        pooled = Pooled(self.backbone.bert, packed, own.adaptation, hidden)(self.head_spec.pooling)
        spec, tensors = self.head_spec, under("head.", own.head)
        outputs = multiply_all(head.steps(spec, tensors), self._drop_output(pooled, own.stream).float())
        if spec.terms is None:
            return outputs
        return largest_logits(outputs, packed.lengths, self.backbone) + tensors["vocabulary.bias"]


class PairAdapter(HeadedAdapter):
    """An adapter that embeds texts: packed rows, of which neighbours are pairs, to outputs [pairs, 2, size]. The
    outputs of a head with terms are the logits of the whole vocabulary."""

    def represent(self, own: Pass, packed: Packed, hidden: Tensor) -> Tensor:
        outputs = super().represent(own, packed, hidden)
        return outputs.view(-1, 2, outputs.shape[-1])


class TokenPairAdapter(HeadedAdapter):
    """An adapter that embeds each token of texts: packed rows, of which neighbours are pairs, to the similarities
    [pairs, pairs] of first texts with second texts."""

    def relate(self, outputs: Tensor, lengths: Sequence[int]) -> Tensor:
        return similarities(outputs, lengths)


class TextAdapter(TrainableAdapter):
    """An adapter of a T5: packed rows, with placeholders of soft prompts in front, and decoder inputs to next-token
    logits [nodes, vocabulary]. Dropout is applied before the output layer, where T5 has its last one."""

    def forward(self, packed: Packed, targets: Targets) -> Tensor:
        model, samples, stream = self.backbone.t5, range(len(packed.lengths)), self.stream or Stream()
        programs = self._lower(self._drawn(len(samples), stream))
        writers = [sample for sample, length in zip(samples, targets.lengths, strict=True) for _ in range(length)]
        encoder = self._adapt(programs, packed.lengths, samples, stream)
        decoder = self._adapt(programs, [1] * len(writers), writers, stream)
        memory = model.project_kv(packed, model.encode(packed, encoder), encoder)
        hidden = model.decode(targets, memory, decoder)
        return model.logits(self._drop_output(hidden, stream), decoder)


def similarities(vectors: Tensor, lengths: Sequence[int]) -> Tensor:
    """The mean MaxSim of each first text of pairs with each second text, [pairs, pairs] (`vectors.similarity`). The
    outputs `vectors` [tokens, size] are those of rows of these lengths; neighbours are pairs.

    The cosines of one first text with all second texts are in memory at a time, and only the places of the largest
    are kept for the gradient."""
    rows = torch.split(F.normalize(vectors, dim=-1), list(lengths))
    documents = pad_sequence(list(rows[1::2]), batch_first=True)  # [pairs, longest, size]
    sizes = torch.tensor(lengths[1::2], device=vectors.device)
    missing = torch.arange(documents.shape[1], device=vectors.device) >= sizes[:, None]
    lines = [
        torch.einsum("qs,pls->qpl", query, documents).masked_fill(missing, -torch.inf).max(-1).values.mean(0)
        for query in rows[::2]
    ]
    return torch.stack(lines)
