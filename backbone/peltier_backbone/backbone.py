"""A loaded backbone: the frozen model with its tokenizer and identity."""

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from peltier_backbone.attention.adaptation import NO_ADAPTATION
from peltier_backbone.bert.bert import Bert
from peltier_backbone.checkpoint.config import BackboneConfig
from peltier_backbone.checkpoint.fingerprint import fingerprint
from peltier_backbone.lay_out import lay_out
from peltier_backbone.linear.linear import Linear, choose_linear
from peltier_backbone.model import Model, architecture
from peltier_backbone.modernbert.modernbert import ModernBert
from peltier_backbone.native.choice import choose_kernels, serving_library
from peltier_backbone.native.rows import NO_OPS
from peltier_backbone.native.stack import Stacks
from peltier_backbone.substitute import build_substitute
from peltier_backbone.t5.native_rows import place_encoder
from peltier_backbone.t5.t5 import T5
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
        model, library = self.model, serving_library(self.device, self.dtype)
        if library is None or self.stacks is None or self.stacks.encoder.packed_by is not library:
            return model.encode(packed) if isinstance(model, T5) else model(packed)
        stack = self.stacks.encoder
        if isinstance(model, T5):
            places = place_encoder(packed.lengths, model.encoder.bias)
            return library.run_stack(stack, model.embedding(packed.ids), places, NO_OPS)
        rows, x = model.place(packed), model.embed(packed, NO_ADAPTATION)
        if model.convolution is None:
            return library.run_stack(stack, x, rows, NO_OPS)

        def run(states: Tensor, own: range) -> Tensor:
            return library.run_stack(stack.part(own.start, own.stop), states, rows, NO_OPS)

        return model.convolution.run_around(run, x, packed, range(self.config.num_layers))

    def weights_digest(self) -> str:
        """The hash of the weights in memory, in the compute dtype; it must not change while the server runs."""
        return fingerprint(self.config, dict(architecture(self.model.config).weights(self.model)))
