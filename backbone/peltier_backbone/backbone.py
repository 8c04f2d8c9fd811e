"""A loaded backbone: the frozen model with its tokenizer and identity."""

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from peltier_backbone.bert.bert import Bert
from peltier_backbone.bert.weights import bert_weights
from peltier_backbone.checkpoint.config import BackboneConfig
from peltier_backbone.checkpoint.fingerprint import fingerprint
from peltier_backbone.modernbert.modernbert import ModernBert
from peltier_backbone.modernbert.weights import modernbert_weights
from peltier_backbone.t5.t5 import T5
from peltier_backbone.t5.weights import t5_weights
from peltier_backbone.text.packing import Encoded, Packed, pack
from peltier_backbone.text.tokenizer import Tokenizer

Model = Bert | ModernBert | T5


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

    @property
    def kept_dtype(self) -> torch.dtype:
        """The dtype in which a decoder keeps keys and values. They are most of what a step of many rows reads. In int8
        they come from rounded products, and bfloat16 rounds them less."""
        return torch.bfloat16 if self.precision == "int8" else self.dtype

    def pack(self, rows: list[Encoded]) -> Packed:
        """Rows back to back on this backbone's device."""
        return pack(rows, self.config, self.device)

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
