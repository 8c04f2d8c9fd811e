"""Reads the pooling and what follows it from a directory of sentence-transformers."""

import json
from pathlib import Path
from typing import Any

import torch
from peltier_backbone.checkpoint.config import BackboneConfig
from peltier_backbone.checkpoint.sentence_pooling import read_sentence_pooling
from peltier_backbone.errors import BackboneError

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.shared.checkpoint import find_file, read_checkpoint
from peltier_adapters.importers.shared.config_file import read_config
from peltier_adapters.importers.shared.head import Dense, SavedHead, create_head, take_dense, vector_head
from peltier_adapters.importers.shared.imported_part import ImportedPart
from peltier_adapters.spec.parts import Pooling

MODULES_FILE = "modules.json"
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
_KNOWN = ("Transformer", "Pooling", "Dense", "Normalize")


def read_sentence_head(directory: Path, config: BackboneConfig) -> SavedHead:
    """The head of an embedding: the pooled vector, or one linear layer of it. Raises an `AdapterError` for other
    modules."""
    modules = _read_modules(directory / MODULES_FILE)
    kinds = [kind for kind, _ in modules]
    unknown = [kind for kind in kinds if kind not in _KNOWN or kinds.count(kind) > 1]
    if unknown or kinds != sorted(kinds, key=_KNOWN.index):
        raise AdapterError(
            f"{directory / MODULES_FILE} has the modules {', '.join(kinds)}; supported are {', '.join(_KNOWN)}, in "
            "this order, each once at most"
        )
    pooling = _read_pooling(directory)
    paths = dict(modules)
    head = _read_dense(directory / paths["Dense"], pooling, config) if "Dense" in paths else None
    return SavedHead(head or vector_head(pooling, config), (), "embedding", "Normalize" in paths)


def _read_modules(path: Path) -> list[tuple[str, str]]:
    """The kind and the folder of each module."""
    try:
        raw: Any = json.loads(path.read_text())
        return [(str(module["type"]).rpartition(".")[2], str(module["path"])) for module in raw]
    except (OSError, ValueError, RecursionError, TypeError, KeyError) as error:
        raise AdapterError(f"{path} is not a list of modules: {error!r}") from None


def _read_pooling(directory: Path) -> Pooling:
    try:
        pooling = read_sentence_pooling(directory)
    except BackboneError as error:
        raise AdapterError(str(error)) from None
    if pooling is None:
        raise AdapterError(f"{directory} names no pooling that is supported: the first token or the mean over tokens")
    return pooling


def _read_dense(directory: Path, pooling: Pooling, config: BackboneConfig) -> ImportedPart:
    """A linear layer is the head's own. With a tanh after it, it is the head's hidden layer, before the identity."""
    settings = read_config(find_file(directory, ("config.json",)))
    checkpoint = read_checkpoint(find_file(directory, _WEIGHTS))
    dense = take_dense(checkpoint, "linear", None, config.hidden_size)
    checkpoint.finish()
    act = str(settings.get("activation_function", "Tanh")).rpartition(".")[2]
    if act == "Identity":
        return create_head(dense, pooling)
    size = len(dense.weight)
    if act != "Tanh" or size != config.hidden_size:
        raise AdapterError(
            f"{settings.where}: the activation after {size} outputs is {act}; supported are Identity, and Tanh after "
            f"{config.hidden_size} outputs"
        )
    return create_head(Dense(torch.eye(size), torch.zeros(size)), pooling, dense)
