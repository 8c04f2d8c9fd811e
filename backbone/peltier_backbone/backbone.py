"""A loaded backbone: the frozen model with its tokenizer and identity."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from peltier_backbone.attention.adaptation import NO_ADAPTATION
from peltier_backbone.attention.view import NativeView, PlacedView
from peltier_backbone.bert.bert import Bert
from peltier_backbone.bert.weights import bert_weights
from peltier_backbone.checkpoint.config import BackboneConfig
from peltier_backbone.checkpoint.fingerprint import fingerprint
from peltier_backbone.decoding.encoder_kv import EncoderKV
from peltier_backbone.decoding.step_view import StepView
from peltier_backbone.decoding.targets import Targets
from peltier_backbone.model import Model
from peltier_backbone.modernbert.modernbert import ModernBert
from peltier_backbone.modernbert.weights import modernbert_weights
from peltier_backbone.native.choice import choose_kernels, serving_library
from peltier_backbone.native.program import NO_OPS
from peltier_backbone.native.stack import NativeStack
from peltier_backbone.substitute import build_substitute
from peltier_backbone.t5.t5 import T5
from peltier_backbone.t5.weights import t5_weights
from peltier_backbone.text.packing import Encoded, Packed, pack
from peltier_backbone.text.tokenizer import Tokenizer


@dataclass(frozen=True)
class Backbone:
    """A frozen model with its tokenizer and identity. `name` is the name that the user gave, `precision` the key of
    `DTYPES`, and `dtype` that of activations."""

    name: str
    config: BackboneConfig
    fingerprint: str
    tokenizer: Tokenizer
    model: Model
    device: torch.device
    dtype: torch.dtype
    precision: str
    kernels: dict[str, str]

    @property
    def bert(self) -> Bert | ModernBert:
        """The model, if it is an encoder; the caller checks `config.generates` first."""
        assert not isinstance(self.model, T5), "callers look at `config.generates` first"
        return self.model

    @property
    def t5(self) -> T5:
        """The model, if it generates; the caller checks `config.generates` first."""
        assert isinstance(self.model, T5), "callers look at `config.generates` first"
        return self.model

    @cached_property
    def kept_dtype(self) -> torch.dtype:
        """The dtype in which a decoder keeps keys and values. They are most of what a step of many rows reads. In int8
        they come from rounded products, and bfloat16 rounds them less. torch's products with a single query are several
        times slower in bfloat16 than in float32 on a CPU."""
        dtype = torch.bfloat16 if self.precision == "int8" else self.dtype
        on_cpu_by_torch = self.device.type == "cpu" and choose_kernels(dtype).library is None
        return torch.float32 if on_cpu_by_torch else dtype

    @cached_property
    def substitute(self) -> "Backbone":
        """The backbone with a substitute for its model, which computes in float32 on the CPU."""
        has_pooler = isinstance(self.model, Bert) and self.model.pooler is not None
        model = build_substitute(self.model.config, has_pooler=has_pooler)
        return replace(
            self, model=model, device=torch.device("cpu"), dtype=torch.float32, precision="float32", kernels={}
        )

    def pack(self, rows: list[Encoded]) -> Packed:
        """Rows back to back on this backbone's device."""
        return pack(rows, self.config, self.device)

    def encode(self, packed: Packed) -> Tensor:
        """The states of rows without adapters after the encoder's last layer, [tokens, hidden]."""
        model, lengths = self.model, packed.lengths
        if isinstance(model, T5):
            x = model.embedding(packed.ids)
            states = self._run(model.encoder.native, x, model.encoder.view(x, lengths))
            return model.encoder(x, lengths, NO_ADAPTATION) if states is None else states
        x = model.embed(packed, NO_ADAPTATION)
        states = self._run(model.native, x, model.view(packed))
        return model.advance(x, packed, NO_ADAPTATION, range(len(model.layers))) if states is None else states

    def decode(self, targets: Targets, memory: EncoderKV) -> Tensor:
        """The states of T5's decoder without adapters, [nodes, hidden]; row r reads memory row r."""
        return self._decode(targets.ids, self.t5.view(targets, memory))

    def step(self, ids: Tensor, rows: StepView) -> Tensor:
        """The same [rows, hidden] for one more token, `ids` [rows], of each row. Each slot grows by its token."""
        rows.begin()
        hidden = self._decode(ids, rows)
        rows.end()
        return hidden

    def _decode(self, ids: Tensor, view: NativeView) -> Tensor:
        x, decoder = self.t5.embedding(ids), self.t5.decoder
        states = self._run(decoder.native, x, view)
        return decoder(x, view, NO_ADAPTATION) if states is None else states

    def _run(self, stack: NativeStack | None, x: Tensor, view: PlacedView) -> Tensor | None:
        """The states after all layers in one native call; None if other kernels serve than those that hold the maps."""
        library = serving_library(self.device, self.dtype)
        if stack is None or library is None or stack.packed_by is not library:
            return None
        return library.run_stack(stack, x, view.place(None), NO_OPS)

    def weights_digest(self) -> str:
        """The hash of the weights in memory, in the compute dtype; it must not change while the server runs."""
        return fingerprint(self.config, dict(_weights(self.model)))


def _weights(model: Model) -> Iterator[tuple[str, Tensor]]:
    match model:
        case T5():
            return t5_weights(model)
        case ModernBert():
            return modernbert_weights(model)
        case Bert():
            return bert_weights(model)
