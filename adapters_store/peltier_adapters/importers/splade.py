"""Imports the head of a SPLADE, a masked language model that weighs the vocabulary's terms (Formal et al. 2021, "SPLADE
v2", section 3). Its other weights are the backbone, so it shares batches with the adapters that are trained on these.
"""

from pathlib import Path
from typing import NamedTuple

import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.config import BackboneConfig
from peltier_backbone.load import read_fingerprint

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.shared.checkpoint import Checkpoint, find_file, read_checkpoint, read_config
from peltier_adapters.importers.shared.head import MODEL_FILES, MODULES_FILE, read_modules
from peltier_adapters.importers.shared.imported import ImportedAdapter, ImportedPart
from peltier_adapters.importers.shared.module_sites import base_names
from peltier_adapters.spec.head import DEFAULT_TERMS, HeadSpec


class _Names(NamedTuple):
    """The tensors of a masked language model's head: y = norm(gelu(x D + d)) E^T + b with the token embeddings E."""

    dense: str
    norm: str
    bias: str
    decoder: str


_MODELS = (
    _Names(  # BERT
        "cls.predictions.transform.dense",
        "cls.predictions.transform.LayerNorm",
        "cls.predictions.bias",
        "cls.predictions.decoder",
    ),
    _Names("vocab_transform", "vocab_layer_norm", "vocab_projector.bias", "vocab_projector"),  # DistilBERT
    _Names("lm_head.dense", "lm_head.layer_norm", "lm_head.bias", "lm_head.decoder"),  # RoBERTa, XLM-R, MPNet
    _Names("head.dense", "head.norm", "decoder.bias", "decoder"),  # ModernBERT
)
# The token embeddings, by their names below the base model.
_EMBEDDINGS = ("embeddings.word_embeddings.weight", "embeddings.tok_embeddings.weight")
# What sentence-transformers calls the modules of a SPLADE, and before its version 5.
_MODULES = (["MLMTransformer", "SpladePooling"], ["Transformer", "SpladePooling"])


def read_splade(path: Path, backbone: Backbone) -> ImportedAdapter:
    """The head of the model in directory `path`, of transformers or sentence-transformers, with at most `DEFAULT_TERMS`
    terms.

    Raises an `AdapterError` for weights that are not the backbone's, and for a head that is not supported.
    """
    if backbone.config.generates:
        raise AdapterError(f"{path} cannot be imported for a T5, which answers in text and has no head")
    if not path.is_dir():
        raise AdapterError(f"{path} is not the directory of a model")
    if read_fingerprint(str(path)) != backbone.fingerprint:
        raise AdapterError(
            f"{path} has other weights than the backbone {backbone.name}; a head is served with the weights with which "
            f"it was trained: give --backbone {path}"
        )
    _check_modules(path)
    checkpoint = read_checkpoint(find_file(path, MODEL_FILES)).renamed(base_names)
    head = _take_head(checkpoint, backbone.config)
    return ImportedAdapter("splade", (), head, (), "sparse-embedding", {"library": "transformers"})


def _check_modules(path: Path) -> None:
    """Refuses modules of sentence-transformers that are not log(1 + relu(logit)), the largest over a text's tokens."""
    if not (path / MODULES_FILE).is_file():
        return
    modules = read_modules(path / MODULES_FILE)
    if [kind for kind, _ in modules] not in _MODULES:
        kinds = ", ".join(kind for kind, _ in modules)
        raise AdapterError(f"{path / MODULES_FILE} has the modules {kinds}; supported are {', '.join(_MODULES[0])}")
    settings = read_config(path / modules[-1][1] / "config.json")
    settings.only("pooling_strategy", "max")
    settings.only("activation_function", "relu")


def _take_head(checkpoint: Checkpoint, config: BackboneConfig) -> ImportedPart:
    """The head of sparse embeddings. The norm's bias becomes the bias of a projection that is the identity."""
    names = next((one for one in _MODELS if f"{one.dense}.weight" in checkpoint), None)
    if names is None:
        raise AdapterError(
            f"{checkpoint.where} has no head of a masked language model that is supported: that of BERT, DistilBERT, "
            "RoBERTa, MPNet or ModernBERT"
        )
    _require_tied(checkpoint, names)
    hidden, rows = config.hidden_size, config.vocab_size
    dense = checkpoint.take(f"{names.dense}.weight", hidden, hidden)
    bias, shift = checkpoint.take_if(f"{names.dense}.bias", hidden), checkpoint.take_if(f"{names.norm}.bias", hidden)
    terms = checkpoint.take_if(names.bias, rows)
    if terms is None:
        terms = checkpoint.take_if(f"{names.decoder}.bias", rows)
    spec = HeadSpec(
        pooling="tokens", hidden=True, activation="gelu", normed=True, outputs=hidden, terms=min(DEFAULT_TERMS, rows)
    )
    tensors = {
        "dense.weight": dense.T,
        "dense.bias": torch.zeros(hidden) if bias is None else bias,
        "norm.weight": checkpoint.take(f"{names.norm}.weight", hidden),
        "weight": torch.eye(hidden),
        "bias": torch.zeros(hidden) if shift is None else shift,
        "vocabulary.bias": torch.zeros(rows) if terms is None else terms,
    }
    return ImportedPart(spec, tensors)


def _require_tied(checkpoint: Checkpoint, names: _Names) -> None:
    """Refuses an output layer that is not the token embeddings, by which the terms of sparse embeddings are scored."""
    output = checkpoint.take_if(f"{names.decoder}.weight")
    found = next((name for name in _EMBEDDINGS if name in checkpoint), None)
    if output is not None and found is not None and not torch.equal(output, checkpoint.take(found)):
        raise AdapterError(f"{checkpoint.where}: {names.decoder}.weight is not the token embeddings, as in a SPLADE")
