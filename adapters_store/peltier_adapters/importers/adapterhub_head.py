"""The heads that AdapterHub saves beside an adapter: its own classes' and the plain transformers ones."""

import re
from pathlib import Path

import torch
from peltier_backbone.load import Backbone
from torch import Tensor

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.checkpoint import Checkpoint, find_file, read_checkpoint
from peltier_adapters.importers.config_file import ConfigFile, read_config
from peltier_adapters.importers.head import create_head, take_dense, take_head
from peltier_adapters.importers.piece import Piece
from peltier_adapters.importers.places import base_names

_CONFIG = "head_config.json"
_FILES = ("model_head.safetensors", "pytorch_model_head.bin")
_TYPES = ("classification", "multilabel_classification")

Found = tuple[Piece | None, tuple[str, ...] | None]


def read_head(path: Path, name: str, backbone: Backbone) -> Found:
    """The head in directory `path` and the names of its labels; None where there is none, or the backbone's own is
    meant."""
    if not (path / _CONFIG).is_file():
        return None, None
    outer = read_config(path / _CONFIG)
    checkpoint = read_checkpoint(find_file(path, _FILES)).renamed(base_names)
    raw = outer.get("config")
    config = ConfigFile(raw if isinstance(raw, dict) else {}, outer.where)
    head = _flexible(config, checkpoint, name, backbone) if raw else _plain(checkpoint, backbone)
    checkpoint.finish()
    labels = _labels(config.get("label2id") if raw else outer.get("label2id"))
    return head, labels


def _plain(checkpoint: Checkpoint, backbone: Backbone) -> Piece | None:
    if backbone.config.generates:
        _check_own(checkpoint, "lm_head.weight", backbone)
        return None
    head = take_head(checkpoint, backbone.config)
    if head is None:
        raise AdapterError(f"{checkpoint.where} has no classifier; an encoder answers with one")
    return head


def _flexible(config: ConfigFile, checkpoint: Checkpoint, name: str, backbone: Backbone) -> Piece | None:
    kind = config.get("head_type")
    if backbone.config.generates and kind == "seq2seq_lm":
        _check_own(checkpoint, f"heads.{name}.0.weight", backbone)
        return None
    if kind not in _TYPES:
        raise AdapterError(f"{config.where}: head_type is {kind!r}; served are {' and '.join(_TYPES)}")
    config.only("layers", 1, 2)
    layers, hidden = config.get("layers", 1), backbone.config.hidden_size
    dense = None
    if layers == 2:
        config.only("activation_function", "tanh")
        dense = take_dense(checkpoint, f"heads.{name}.1", hidden, hidden)
    output = take_dense(checkpoint, f"heads.{name}.{1 if layers == 1 else 4}", None, hidden)
    return create_head(output, "pooler" if config.get("use_pooler", False) else "first", dense)


def _check_own(checkpoint: Checkpoint, name: str, backbone: Backbone) -> None:
    """A language-model head must be the backbone's, which many tasks share."""
    saved = checkpoint.take(name, None, backbone.config.hidden_size)
    own: Tensor = backbone.t5.lm_head.weights()[0].cpu()
    if len(saved) < len(own) or not torch.allclose(saved[: len(own)], own, atol=1e-6):
        raise AdapterError(
            f"{checkpoint.where}: tensor {name!r} is not the backbone's own; a T5 answers with its frozen output layer"
        )


def _labels(ids: object) -> tuple[str, ...] | None:
    """Names in the order of their ids; None where they only count."""
    if not isinstance(ids, dict) or sorted(ids.values(), key=str) != sorted(range(len(ids)), key=str):
        return None
    names = sorted(ids, key=lambda one: int(ids[one]))
    return None if all(re.fullmatch(r"LABEL_\d+", one) for one in names) else tuple(names)
