"""Batches of rows that lie back to back, without pads: by the native kernels of the CPU, which compute all layers of a
model in one call, or by torch, layer by layer."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.modernbert_config import ModernBertConfig
from peltier_backbone.decoding.cache import Cache, EncoderKV
from peltier_backbone.decoding.likeliest import find_likeliest
from peltier_backbone.decoding.targets import Targets
from peltier_backbone.native.rows import StackRows
from peltier_backbone.native.stack import NativeStack
from peltier_backbone.t5.native_rows import StepRows, place_encoder, place_targets
from peltier_backbone.text.packing import Packed, pack
from torch import Tensor

from peltier_adapters.batch.adaptation import BatchAdaptation
from peltier_adapters.batch.heads import Pooled, read_heads
from peltier_adapters.batch.row import (
    LayerGates,
    Row,
    RowOutput,
    Stage,
    group_rows,
    join_gates,
    plan_stages,
    read_gates,
    repeat_rows,
    rows_of,
    spread,
    with_gates,
)
from peltier_adapters.batch.runner import Steps
from peltier_adapters.batch.scoring import list_trees, pack_targets, score_trees
from peltier_adapters.ops import choice
from peltier_adapters.ops.backend import Backend
from peltier_adapters.ops.native import NativeBackend, NativeOps
from peltier_adapters.ops.torch import TORCH


class PackedBatch(ABC):
    """A `Runner`: embeddings, layers and heads of packed rows, with the adapters' ops of `backend`."""

    def __init__(self, backbone: Backbone, backend: Backend) -> None:
        self._backbone, self._backend = backbone, backend
        self._head_backend = choice.choose_backend(backbone.device, torch.float32)

    @abstractmethod
    def advance(self, x: Tensor, packed: Packed, adaptation: BatchAdaptation, layers: range) -> Tensor:
        """The states after consecutive `layers` of an encoder, of the states x before them, both [tokens, hidden]."""

    @abstractmethod
    def encode(self, packed: Packed, adaptation: BatchAdaptation) -> Tensor:
        """The states of T5's encoder, [tokens, hidden]."""

    @abstractmethod
    def decode(self, targets: Targets, memory: EncoderKV, adaptation: BatchAdaptation) -> Tensor:
        """The states of T5's decoder for given tokens, [nodes, hidden]."""

    @abstractmethod
    def arrange(self, rows: Sequence[Row], slots: Sequence[int], cache: Cache) -> Steps:
        """See `Runner`."""

    @property
    def shares_blocks(self) -> bool:
        """See `Runner`."""
        return not self._backbone.config.generates

    def run(self, rows: Sequence[Row], *, record_gates: bool = False) -> list[RowOutput]:
        """See `Runner`."""
        packed, num_layers = self._pack(rows), self._backbone.config.num_layers
        adaptation = self._adapt(rows, packed.lengths, record_gates=record_gates)
        if self._backbone.config.generates:
            outputs = self._score(rows, self._remember(packed, adaptation))
            return with_gates(outputs, read_gates(adaptation.groups), num_layers)
        stages = plan_stages(rows, num_layers)
        if stages:
            hidden, gates = self._run_stages(stages, packed, adaptation, record_gates=record_gates)
        else:
            hidden, gates = self._encode(packed, adaptation), read_gates(adaptation.groups)
        pooled = Pooled(self._backbone.bert, packed, adaptation, hidden)
        return with_gates(read_heads(rows, pooled, self._backbone, self._head_backend), gates, num_layers)

    def join(self, rows: Sequence[Row], copies: Sequence[int], cache: Cache) -> list[list[int]]:
        """See `Runner`."""
        packed = self._pack(rows)
        return cache.join(self._remember(packed, self._adapt(rows, packed.lengths)), copies)

    def find_likeliest(self, logits: Tensor) -> list[tuple[int, float]]:
        """See `Runner`."""
        return find_likeliest(logits)

    def _pack(self, rows: Sequence[Row]) -> Packed:
        return pack([row.prompted for row in rows], self._backbone.config, self._backbone.device)

    def _adapt(self, rows: Sequence[Row], lengths: Sequence[int], *, record_gates: bool = False) -> BatchAdaptation:
        return BatchAdaptation(self._backbone, group_rows(rows, record_gates=record_gates), lengths, self._backend)

    def _encode(self, packed: Packed, adaptation: BatchAdaptation) -> Tensor:
        """The states of an encoder's last layer."""
        x = self._backbone.bert.embed(packed, adaptation)
        return self.advance(x, packed, adaptation, range(self._backbone.config.num_layers))

    def _run_stages(
        self, stages: Sequence[Stage], whole: Packed, whole_adaptation: BatchAdaptation, *, record_gates: bool
    ) -> tuple[Tensor, list[LayerGates]]:
        """The same where rows of one text share stages, and the gates of each row; `whole` has all rows."""
        x, gates = torch.empty(0), list[list[LayerGates]]()
        before: Stage | None = None
        for stage in stages:
            packed, adaptation = whole, whole_adaptation
            if not stage.complete:
                packed = self._pack(stage.rows)
                adaptation = self._adapt(stage.rows, packed.lengths, record_gates=record_gates)
            x = self._backbone.bert.embed(packed, adaptation) if before is None else spread(x, before, stage)
            if stage.layers:
                x = self.advance(x, packed, adaptation, stage.layers)
            gates.append(read_gates(adaptation.groups))
            before = stage
        hidden = x if stages[-1].complete else rows_of(x, stages[-1], stages[-1].places)
        return hidden, join_gates(stages, gates)

    def _remember(self, packed: Packed, adaptation: BatchAdaptation) -> EncoderKV:
        """What T5's decoder reads of encoded rows."""
        return self._backbone.t5.project_kv(packed, self.encode(packed, adaptation), adaptation)

    def _score(self, rows: Sequence[Row], memory: EncoderKV) -> list[Tensor]:
        """The log-likelihoods [labels] of each row's label strings."""
        trees = list_trees(rows)
        targets = pack_targets(trees, self._backbone.device)
        tokens = repeat_rows(rows, targets.lengths)
        adaptation = self._adapt(tokens, [1] * len(tokens))
        hidden = self.decode(targets, memory, adaptation)
        return score_trees(trees, self._backbone.t5.logits(hidden, adaptation))


class TorchBatch(PackedBatch):
    """The reference, and what serves where there are no kernels for whole batches: the layers of the models."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__(backbone, TORCH)

    def advance(self, x: Tensor, packed: Packed, adaptation: BatchAdaptation, layers: range) -> Tensor:
        return self._backbone.bert.advance(x, packed, adaptation, layers)

    def encode(self, packed: Packed, adaptation: BatchAdaptation) -> Tensor:
        return self._backbone.t5.encode(packed, adaptation)

    def decode(self, targets: Targets, memory: EncoderKV, adaptation: BatchAdaptation) -> Tensor:
        return self._backbone.t5.decode(targets, memory, adaptation)

    def arrange(self, rows: Sequence[Row], slots: Sequence[int], cache: Cache) -> Steps:
        model, device, adaptation = self._backbone.t5, self._backbone.device, self._adapt(rows, [1] * len(rows))
        view = model.arrange(slots, cache)

        def step(tokens: Sequence[int]) -> Tensor:
            return model.logits(model.step(torch.tensor(tokens, device=device), view, adaptation), adaptation)

        return step


class NativeBatch(PackedBatch):
    """All layers of a model, with all adapters, are one native call. The kernels of the backend have packed the maps of
    the backbone."""

    def __init__(self, backbone: Backbone, backend: NativeBackend) -> None:
        super().__init__(backbone, backend)
        assert backbone.stacks is not None, "the kernels have packed its maps"
        self._library, self._stacks = backend.library, backbone.stacks

    def advance(self, x: Tensor, packed: Packed, adaptation: BatchAdaptation, layers: range) -> Tensor:
        config, padded = self._backbone.config, packed.seen != packed.lengths
        local = isinstance(config, ModernBertConfig) and any(config.is_local)
        assert not (padded and local), "a pad has no near tokens to see"
        stack, model = self._stacks.encoder, self._backbone.bert
        rows = model.place(packed)

        def run(states: Tensor, own: range) -> Tensor:
            part = stack.part(own.start, own.stop) if len(own) < stack.layout.count else stack
            return self._run(part, states, rows, adaptation)

        return run(x, layers) if model.convolution is None else model.convolution.run_around(run, x, packed, layers)

    def encode(self, packed: Packed, adaptation: BatchAdaptation) -> Tensor:
        model = self._backbone.t5
        x = adaptation.embed(model.embedding(packed.ids))
        return self._run(self._stacks.encoder, x, place_encoder(packed.lengths, model.encoder.bias), adaptation)

    def decode(self, targets: Targets, memory: EncoderKV, adaptation: BatchAdaptation) -> Tensor:
        model, ops = self._backbone.t5, _native(adaptation)
        bias, num_heads = model.decoder.bias, model.config.num_heads
        rows = place_targets(targets, memory, bias, num_heads, by_token=ops.placed.prefixed)
        return self._run(self._decoder, model.embedding(targets.ids), rows, adaptation)

    def arrange(self, rows: Sequence[Row], slots: Sequence[int], cache: Cache) -> Steps:
        model, adaptation = self._backbone.t5, self._adapt(rows, [1] * len(rows))
        own, stack, placed = StepRows(slots, cache, model.decoder.bias), self._decoder, _native(adaptation).placed

        def step(tokens: Sequence[int]) -> Tensor:
            x = model.embedding(torch.tensor(tokens))
            hidden = self._library.run_stack(stack, x, own.begin(), placed)
            own.end()
            return model.logits(hidden, adaptation)

        return step

    def find_likeliest(self, logits: Tensor) -> list[tuple[int, float]]:
        tokens, log_probs = self._library.likeliest(logits)
        return list(zip(tokens.tolist(), log_probs.tolist(), strict=True))

    @property
    def _decoder(self) -> NativeStack:
        assert self._stacks.decoder is not None, "only T5 decodes"
        return self._stacks.decoder

    def _run(self, stack: NativeStack, x: Tensor, rows: StackRows, adaptation: BatchAdaptation) -> Tensor:
        """The states after all layers of `stack` of the states x before them, both [tokens, hidden]."""
        ops = _native(adaptation)
        states = self._library.run_stack(stack, x, rows, ops.placed)
        if ops.records:
            ops.record(stack.places())
        return states


def _native(adaptation: BatchAdaptation) -> NativeOps:
    assert isinstance(adaptation.ops, NativeOps), "they are those of the native backend"
    return adaptation.ops
