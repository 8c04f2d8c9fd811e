"""Imports the head of a SPLADE, a masked language model that weighs the vocabulary's terms (Formal et al. 2021, "SPLADE
v2", section 3). Its other weights are the backbone, so it shares batches with the adapters that are trained on these.
"""

from pathlib import Path
from typing import NamedTuple

import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.checkpoint import find_checkpoint, read_tensors
from peltier_backbone.checkpoint.config import BackboneConfig, ModernBertConfig
from peltier_backbone.errors import BackboneError
from peltier_backbone.load import read_fingerprint
from torch import Tensor

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.shared.checkpoint import Checkpoint, read_config
from peltier_adapters.importers.shared.head import MODULES_FILE, read_modules, take_dense
from peltier_adapters.importers.shared.imported import ImportedAdapter, ImportedPart
from peltier_adapters.importers.shared.module_sites import base_names
from peltier_adapters.spec.head import DEFAULT_TERMS, HeadSpec


class _Names(NamedTuple):
    """The tensors of a masked language model's head: y = norm(gelu(x D + d)) E^T + b with the token embeddings E. `own`
    matches all that belong to it."""

    own: str
    dense: str
    norm: str
    bias: str
    decoder: str


_MODELS = (
    _Names(  # BERT, and relatives with its names
        r"cls\.predictions\..*",
        "cls.predictions.transform.dense",
        "cls.predictions.transform.LayerNorm",
        "cls.predictions.bias",
        "cls.predictions.decoder",
    ),
    # DistilBERT
    _Names(r"vocab_.*", "vocab_transform", "vocab_layer_norm", "vocab_projector.bias", "vocab_projector"),
    # RoBERTa's relatives and MPNet
    _Names(r"lm_head\..*", "lm_head.dense", "lm_head.layer_norm", "lm_head.bias", "lm_head.decoder"),
    # ModernBERT
    _Names(r"(head|decoder)\..*", "head.dense", "head.norm", "decoder.bias", "decoder"),
)
# The token embeddings, by their names below the base model.
_EMBEDDINGS = ("embeddings.word_embeddings.weight", "embeddings.tok_embeddings.weight")
# What sentence-transformers calls the modules of a SPLADE, and before its version 5.
_MODULES = (["MLMTransformer", "SpladePooling"], ["Transformer", "SpladePooling"])


def read_splade(path: Path, backbone: Backbone) -> ImportedAdapter:
    """The head of the model `path`, a directory or a hub id as of a backbone, of transformers or sentence-transformers,
    with at most `DEFAULT_TERMS` terms.

    Raises an `AdapterError` for weights that are not the backbone's, and for a head that is not supported.
    """
    if backbone.config.generates:
        raise AdapterError(f"{path} cannot be imported for a T5, which answers in text and has no head")
    try:
        directory, found = find_checkpoint(str(path)), read_fingerprint(str(path))
    except BackboneError as error:
        raise AdapterError(str(error)) from None
    if found != backbone.fingerprint:
        raise AdapterError(
            f"{path} has other weights than the backbone {backbone.name}; a head is served with the weights with which "
            f"it was trained: give --backbone {path}"
        )
    _check_modules(directory)
    checkpoint = Checkpoint(read_tensors(directory), directory).renamed(base_names)
    settings = read_config(directory / "config.json")
    has_terms = not isinstance(backbone.config, ModernBertConfig) or bool(settings.get("decoder_bias", True))
    head = _take_head(checkpoint, backbone.config, has_terms=has_terms)
    return ImportedAdapter("splade", (), head, (), "sparse-embedding", {"library": "transformers"})


def _check_modules(path: Path) -> None:
    """Refuses modules of sentence-transformers that are not log(1 + relu(logit)), the largest over a text's tokens."""
    if not (path / MODULES_FILE).is_file():
        return
    modules = read_modules(path / MODULES_FILE)
    if [kind for kind, _ in modules] not in _MODULES or modules[0][1]:
        shown = ", ".join(f"{kind} in {folder!r}" for kind, folder in modules) or "none"
        raise AdapterError(
            f"{path / MODULES_FILE} has the modules {shown}; those of a SPLADE are {_MODULES[0][0]} in '' and "
            f"{_MODULES[0][1]}"
        )
    settings = read_config(path / modules[-1][1] / "config.json")
    settings.only("pooling_strategy", "max")
    settings.only("activation_function", "relu")
    settings.ignore("word_embedding_dimension", "embedding_dimension", "chunk_size")
    settings.finish()


def _take_head(checkpoint: Checkpoint, config: BackboneConfig, *, has_terms: bool) -> ImportedPart:
    """The head of sparse embeddings. The norm's bias becomes the bias of a projection that is the identity. With
    `has_terms` each term of the vocabulary has a bias."""
    if isinstance(config, ModernBertConfig) and config.classifier_activation != "gelu":
        raise AdapterError(
            f"{checkpoint.where}: classifier_activation is {config.classifier_activation!r}; supported is 'gelu'"
        )
    names = next((one for one in _MODELS if f"{one.dense}.weight" in checkpoint), None)
    if names is None:
        raise AdapterError(
            f"{checkpoint.where} has no head of a masked language model that is supported: that of BERT, DistilBERT, "
            "RoBERTa, MPNet or ModernBERT"
        )
    _require_tied(checkpoint, names)
    hidden, rows = config.hidden_size, config.vocab_size
    biased = not isinstance(config, ModernBertConfig) or config.classifier_biased
    dense = take_dense(checkpoint, names.dense, hidden, hidden, biased=biased)
    # The norms of a ModernBERT have no bias.
    shift = (
        torch.zeros(hidden) if isinstance(config, ModernBertConfig) else checkpoint.take(f"{names.norm}.bias", hidden)
    )
    terms = _take_terms(checkpoint, names, rows) if has_terms else torch.zeros(rows)
    spec = HeadSpec(
        pooling="tokens", hidden=True, activation="gelu", normed=True, outputs=hidden, terms=min(DEFAULT_TERMS, rows)
    )
    tensors = {
        "dense.weight": dense.weight.T,
        "dense.bias": dense.bias,
        "norm.weight": checkpoint.take(f"{names.norm}.weight", hidden),
        "weight": torch.eye(hidden),
        "bias": shift,
        "vocabulary.bias": terms,
    }
    if left := checkpoint.matches(names.own):
        raise AdapterError(f"{checkpoint.where}: the head has the tensor {left[0][0]!r}, which is not supported")
    return ImportedPart(spec, tensors)


def _take_terms(checkpoint: Checkpoint, names: _Names, rows: int) -> Tensor:
    """The bias of each term, which a file has once, or twice as the same tensor."""
    own = f"{names.decoder}.bias"
    second = checkpoint.take_if(own, rows) if own != names.bias else None
    if second is None:
        return checkpoint.take(names.bias, rows)
    first = checkpoint.take_if(names.bias, rows)
    if first is not None and not torch.equal(first, second):
        raise AdapterError(f"{checkpoint.where}: tensors {names.bias!r} and {own!r} differ; they are one bias")
    return second


def _require_tied(checkpoint: Checkpoint, names: _Names) -> None:
    """Refuses an output layer that is not the token embeddings, by which the terms of sparse embeddings are scored."""
    output = checkpoint.take_if(f"{names.decoder}.weight")
    found = next((name for name in _EMBEDDINGS if name in checkpoint), None)
    if output is not None and found is not None and not torch.equal(output, checkpoint.take(found)):
        raise AdapterError(f"{checkpoint.where}: {names.decoder}.weight is not the token embeddings, as in a SPLADE")
