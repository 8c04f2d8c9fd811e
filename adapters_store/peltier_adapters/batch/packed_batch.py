"""Batches of rows that lie back to back, without pads. `TorchBatch` and `NativeBatch` compute their layers."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

import torch
from peltier_backbone.attention.view import NativeView
from peltier_backbone.backbone import Backbone
from peltier_backbone.decoding.cache import Cache
from peltier_backbone.decoding.encoder_kv import EncoderKV
from peltier_backbone.decoding.likeliest import Likeliest, find_likeliest
from peltier_backbone.text.packing import Packed
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


class PackedBatch(ABC):
    """A `Runner`: embeddings, layers and heads of packed rows, with the adapters' ops of `backend`."""

    def __init__(self, backbone: Backbone, backend: Backend) -> None:
        self._backbone, self._backend = backbone, backend
        self._head_backend = choice.choose_backend(backbone.device, torch.float32)

    @abstractmethod
    def advance(self, x: Tensor, packed: Packed, adaptation: BatchAdaptation, layers: range) -> Tensor:
        """The states after consecutive `layers` of an encoder, of the states x before them, both [tokens, hidden]."""

    @abstractmethod
    def encode(self, x: Tensor, packed: Packed, adaptation: BatchAdaptation) -> Tensor:
        """The states of T5's encoder for embedded tokens x, both [tokens, hidden]."""

    @abstractmethod
    def decode(self, x: Tensor, view: NativeView, adaptation: BatchAdaptation) -> Tensor:
        """The states of T5's decoder for embedded tokens x, both [tokens, hidden], which attend as `view` says."""

    @property
    def shares_blocks(self) -> bool:
        """See `Runner`."""
        return not self._backbone.config.generates

    def run(self, rows: Sequence[Row], *, record_gates: bool = False) -> list[RowOutput]:
        """See `Runner`."""
        packed, num_layers = self._backbone.pack([row.prompted for row in rows]), self._backbone.config.num_layers
        adaptation = self._adapt(rows, packed.lengths, record_gates=record_gates)
        if self._backbone.config.generates:
            outputs = self._score(rows, self._remember(packed, adaptation))
            return with_gates(outputs, read_gates(adaptation.groups), num_layers)
        stages = plan_stages(rows, num_layers)
        if stages:
            hidden, gates = self._run_stages(stages, packed, adaptation, record_gates=record_gates)
        else:
            hidden, gates = self._encode(packed, adaptation), read_gates(adaptation.groups)
        pooled = Pooled(self._backbone, packed, adaptation, hidden)
        return with_gates(read_heads(rows, pooled, self._backbone.device, self._head_backend), gates, num_layers)

    def join(self, rows: Sequence[Row], copies: Sequence[int], cache: Cache) -> list[list[int]]:
        """See `Runner`."""
        packed = self._backbone.pack([row.prompted for row in rows])
        return cache.join(self._remember(packed, self._adapt(rows, packed.lengths)), copies)

    def arrange(self, rows: Sequence[Row], slots: Sequence[int], cache: Cache) -> Steps:
        """See `Runner`."""
        model, device, adaptation = self._backbone.t5, self._backbone.device, self._adapt(rows, [1] * len(rows))
        view = model.arrange(slots, cache)

        def step(tokens: Sequence[int]) -> Tensor:
            view.begin()
            hidden = self.decode(model.embedding(torch.tensor(tokens, device=device)), view, adaptation)
            view.end()
            return model.logits(hidden, adaptation)

        return step

    def find_likeliest(self, logits: Tensor) -> Likeliest:
        """See `Runner`."""
        return find_likeliest(logits)

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
                packed = self._backbone.pack([row.prompted for row in stage.rows])
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
        model = self._backbone.t5
        states = self.encode(adaptation.embed(model.embedding(packed.ids)), packed, adaptation)
        return model.project_kv(packed, states, adaptation)

    def _score(self, rows: Sequence[Row], memory: EncoderKV) -> list[Tensor]:
        """The log-likelihoods [labels] of each row's label strings."""
        model, trees = self._backbone.t5, list_trees(rows)
        targets = pack_targets(trees, self._backbone.device)
        tokens = repeat_rows(rows, targets.lengths)
        adaptation = self._adapt(tokens, [1] * len(tokens))
        hidden = self.decode(model.embedding(targets.ids), model.view(targets, memory), adaptation)
        return score_trees(trees, model.logits(hidden, adaptation))
