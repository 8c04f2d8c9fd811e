"""A loaded backbone: the frozen model with its tokenizer and identity."""

import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import torch
from torch import Tensor

from peltier_backbone.attention.adaptation import NO_ADAPTATION
from peltier_backbone.bert.bert import Bert
from peltier_backbone.bert.weights import bert_weights
from peltier_backbone.checkpoint.config import BackboneConfig
from peltier_backbone.checkpoint.fingerprint import fingerprint
from peltier_backbone.decoding.cache import Cache, EncoderKV
from peltier_backbone.decoding.targets import Targets
from peltier_backbone.lay_out import lay_out
from peltier_backbone.linear.linear import Linear, choose_linear
from peltier_backbone.model import Model
from peltier_backbone.modernbert.modernbert import ModernBert
from peltier_backbone.modernbert.weights import modernbert_weights
from peltier_backbone.native.choice import choose_kernels, serving_library
from peltier_backbone.native.library import Library
from peltier_backbone.native.rows import NO_OPS, StackRows
from peltier_backbone.native.stack import Stacks
from peltier_backbone.substitute import build_substitute
from peltier_backbone.t5.native_rows import StepRows, place_encoder, place_targets
from peltier_backbone.t5.t5 import T5
from peltier_backbone.t5.weights import t5_weights
from peltier_backbone.text.packing import Encoded, Packed, pack
from peltier_backbone.text.tokenizer import Tokenizer

VOCABULARY_PART = 4096
# Two threads do not copy the embeddings of a backbone at once.
_VOCABULARY_LOCK = threading.Lock()


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

    @cached_property
    def bert(self) -> Bert | ModernBert:
        """The model, if it is an encoder; the caller checks `config.generates` first."""
        assert not isinstance(self.model, T5), "callers look at `config.generates` first"
        return self.model

    @cached_property
    def t5(self) -> T5:
        """The model, if it generates; the caller checks `config.generates` first."""
        assert isinstance(self.model, T5), "callers look at `config.generates` first"
        return self.model

    @cached_property
    def stacks(self) -> Stacks | None:
        """The layers for the native kernels; None if these do not compute all maps."""
        return lay_out(self.model)

    @property
    def vocabulary(self) -> Sequence[Linear]:
        """Maps from states as wide as token embeddings to logits, their products with these embeddings in float32: one
        map for each `VOCABULARY_PART` tokens of the vocabulary. They have their own copy of the embeddings, from the
        first use on; `forget_vocabulary` frees it. Safe from any thread."""
        with _VOCABULARY_LOCK:
            return self._vocabulary

    @cached_property
    def _vocabulary(self) -> Sequence[Linear]:
        kernel, size = choose_linear(self.device, torch.float32), self.config.vocab_size
        parts = (slice(start, min(start + VOCABULARY_PART, size)) for start in range(0, size, VOCABULARY_PART))
        return [kernel(self.bert.tokens.part(part.start, part.stop).float()) for part in parts]

    def forget_vocabulary(self) -> None:
        """Frees the copy of `vocabulary`, if there is one; the next use makes another."""
        self.__dict__.pop("_vocabulary", None)

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
        model, lengths, served = self.model, packed.lengths, self._served
        if isinstance(model, T5):
            if served is None:
                return model.encode(packed)
            return served.encode(model.embedding(packed.ids), place_encoder(lengths, model.encoder.bias))
        if served is None:
            return model(packed)
        rows, x = model.place(packed), model.embed(packed, NO_ADAPTATION)
        if model.convolution is None:
            return served.encode(x, rows)
        layers = range(self.config.num_layers)
        return model.convolution.run_around(lambda states, own: served.encode(states, rows, own), x, packed, layers)

    def decode(self, targets: Targets, memory: EncoderKV) -> Tensor:
        """The states of T5's decoder without adapters, [nodes, hidden]; row r reads memory row r."""
        model, served = self.t5, self._served
        if served is None:
            return model.decode(targets, memory)
        rows = place_targets(targets, memory, model.decoder.bias, model.config.num_heads, by_token=False)
        return served.decode(model.embedding(targets.ids), rows)

    def arrange(self, slots: Sequence[int], cache: Cache) -> Callable[[Tensor], Tensor]:
        """The next steps of rows without adapters, one for each of the distinct `slots`, until rows join or leave the
        cache: from one more token of each row, [rows], to its states [rows, hidden]. Each slot grows by its token."""
        model, served = self.t5, self._served
        if served is None:
            view = model.arrange(slots, cache)
            return lambda ids: model.step(ids, view)
        rows = StepRows(slots, cache, model.decoder.bias)

        def step(ids: Tensor) -> Tensor:
            hidden = served.decode(model.embedding(ids), rows.begin())
            rows.end()
            return hidden

        return step

    @property
    def _served(self) -> "_Served | None":
        """The layers, if the kernels that have packed their maps serve; else None."""
        library = serving_library(self.device, self.dtype)
        if library is None or self.stacks is None or self.stacks.encoder.packed_by is not library:
            return None
        return _Served(library, self.stacks)

    def weights_digest(self) -> str:
        """The hash of the weights in memory, in the compute dtype; it must not change while the server runs."""
        return fingerprint(self.config, dict(_weights(self.model)))


class _Served(NamedTuple):
    """The layers of a model without adapters by the native kernels."""

    library: Library
    stacks: Stacks

    def encode(self, x: Tensor, rows: StackRows, layers: range | None = None) -> Tensor:
        """The states after consecutive layers of the encoder, by default all, of the states x before them, both
        [tokens, hidden]."""
        stack = self.stacks.encoder if layers is None else self.stacks.encoder.part(layers.start, layers.stop)
        return self.library.run_stack(stack, x, rows, NO_OPS)

    def decode(self, x: Tensor, rows: StackRows) -> Tensor:
        """The same of the decoder's."""
        assert self.stacks.decoder is not None, "a T5 has one"
        return self.library.run_stack(self.stacks.decoder, x, rows, NO_OPS)


def _weights(model: Model) -> Iterator[tuple[str, Tensor]]:
    match model:
        case T5():
            return t5_weights(model)
        case ModernBert():
            return modernbert_weights(model)
        case Bert():
            return bert_weights(model)
