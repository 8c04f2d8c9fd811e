"""The frozen models of all families, and how one is built from its weights."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from peltier_backbone.bert.bert import Bert
from peltier_backbone.bert.weights import bert_weights, build_bert, canonical_bert
from peltier_backbone.checkpoint.config import BertConfig, Config, EuroBertConfig, ModernBertConfig, T5Config
from peltier_backbone.checkpoint.weights import Weights
from peltier_backbone.errors import BackboneError
from peltier_backbone.linear.linear import LinearKernel
from peltier_backbone.linear.table import TableKernel
from peltier_backbone.modernbert.modernbert import ModernBert
from peltier_backbone.modernbert.weights import (
    build_eurobert,
    build_modernbert,
    canonical_modernbert,
    modernbert_weights,
)
from peltier_backbone.t5.t5 import T5
from peltier_backbone.t5.weights import build_t5, canonical_t5, t5_weights

Model = Bert | ModernBert | T5


class Architecture(NamedTuple):
    """How a checkpoint becomes a model, each of its own class. `canonical` gives the tensors, of a configuration and a
    directory, the names under which they are hashed and consumed. `build` consumes all of them, keeps maps by a kernel
    and token embeddings in a table. `weights` lists those of a model in memory."""

    canonical: Callable[[dict[str, Tensor], Any, Path], dict[str, Tensor]]
    build: Callable[[Any, Weights, LinearKernel, TableKernel], Model]
    weights: Callable[[Any], Iterator[tuple[str, Tensor]]]


_ARCHITECTURES: Mapping[type[Config], Architecture] = {
    BertConfig: Architecture(canonical_bert, build_bert, bert_weights),
    ModernBertConfig: Architecture(canonical_modernbert, build_modernbert, modernbert_weights),
    EuroBertConfig: Architecture(canonical_modernbert, build_eurobert, modernbert_weights),
    T5Config: Architecture(canonical_t5, build_t5, t5_weights),
}


def architecture(config: Config) -> Architecture:
    """That of the configuration's class, or of the nearest one above it. Raises a `BackboneError` without any."""
    for kind in type(config).__mro__:
        if kind in _ARCHITECTURES:
            return _ARCHITECTURES[kind]
    raise BackboneError(f"no model is known for a configuration of type {type(config).__name__}")
