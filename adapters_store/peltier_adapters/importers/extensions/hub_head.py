"""Reads the heads that AdapterHub saves beside an adapter: its own, and those of transformers' classes."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.config import BackboneConfig
from torch import Tensor

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.shared.checkpoint import Checkpoint, ConfigFile, find_file, read_checkpoint, read_config
from peltier_adapters.importers.shared.head import OUTPUT_LAYERS, create_head, take_dense, take_head, type_of_class
from peltier_adapters.importers.shared.imported import SavedHead
from peltier_adapters.importers.shared.labels import label_names
from peltier_adapters.importers.shared.module_sites import base_names
from peltier_adapters.spec.parts import HeadSpec, PoolingKind
from peltier_adapters.spec.tasks import SPAN_LABELS, TOKEN_TYPES, TaskType

_HEAD_CONFIG = "head_config.json"
_HEAD_FILES = ("model_head.safetensors", "pytorch_model_head.bin")
# Task types by AdapterHub's name of a head. Where it is None, the type follows from the outputs: one is a regression.
_HEAD_TYPES: Mapping[str, TaskType | None] = {
    "classification": None,
    "multilabel_classification": "multilabel",
    "tagging": "token-classification",
    "question_answering": "span",
}
_HEAD_DESCRIPTION = ("name", "model_name", "version")


def check_model(outer: ConfigFile, config: BackboneConfig) -> None:
    """Refuses settings of an adapter or a head that name another model than the backbone."""
    for key, own in (("model_type", config.family), ("hidden_size", config.hidden_size)):
        found = outer.get(key, own)
        if found != own:
            raise AdapterError(f"{outer.where}: {key} is {found!r}; this backbone's is {own!r}")


def read_head(path: Path, name: str, backbone: Backbone) -> SavedHead:
    """The head in directory `path`; raises `AdapterError` for what is not supported."""
    if not (path / _HEAD_CONFIG).is_file():
        if saved := [file for file in _HEAD_FILES if (path / file).is_file()]:
            raise AdapterError(f"{path} has {saved[0]}, but no {_HEAD_CONFIG} that says what it is")
        return SavedHead()
    outer = read_config(path / _HEAD_CONFIG)
    checkpoint = read_checkpoint(find_file(path, _HEAD_FILES)).renamed(base_names)
    raw = outer.get("config")
    config = ConfigFile(raw if isinstance(raw, dict) else {}, outer.where)
    plain = type_of_class(outer.get("model_class"))
    head = _flexible_head(config, checkpoint, name, backbone) if raw else _plain_head(checkpoint, plain, backbone)
    named = config if raw else outer
    if head.piece is None:
        named.ignore("label2id", "num_labels")  # a language model's outputs are tokens
    else:
        assert isinstance(head.piece.spec, HeadSpec), "it is a head"
        head = replace(head, labels=label_names(named, head.piece.spec.outputs))
    check_model(outer, backbone.config)
    outer.ignore(*_HEAD_DESCRIPTION)
    for settings in (outer, config):
        settings.finish()
    checkpoint.finish()
    return head


def _plain_head(checkpoint: Checkpoint, task_type: TaskType | None, backbone: Backbone) -> SavedHead:
    if backbone.config.generates:
        _check_own(checkpoint, "lm_head.weight", backbone)
        return SavedHead()
    head = take_head(checkpoint, backbone.config, task_type)
    if head is None:
        raise AdapterError(f"{checkpoint.where} has no tensor {OUTPUT_LAYERS}")
    return SavedHead(head, task_type=task_type)


def _flexible_head(config: ConfigFile, checkpoint: Checkpoint, name: str, backbone: Backbone) -> SavedHead:
    kind = config.get("head_type")
    config.ignore("vocab_size", "dropout_prob")
    if backbone.config.generates and kind == "seq2seq_lm":
        config.only("layers", 1)
        for key in ("layer_norm", "bias"):
            config.only(key, False)
        config.ignore("shift_labels", "activation_function")
        _check_own(checkpoint, f"heads.{name}.0.weight", backbone)
        return SavedHead()
    if not isinstance(kind, str) or kind not in _HEAD_TYPES:
        raise AdapterError(f"{config.where}: head_type is {kind!r}; supported are {', '.join(_HEAD_TYPES)}")
    config.only("layers", 1, 2)
    layers, hidden = config.get("layers", 1), backbone.config.hidden_size
    dense = None
    if layers == 2:
        config.only("activation_function", "tanh")
        dense = take_dense(checkpoint, f"heads.{name}.1", hidden, hidden)
    config.ignore("activation_function")
    task_type = _HEAD_TYPES[kind]
    outputs = len(SPAN_LABELS) if task_type == "span" else None
    biased = bool(config.get("bias", True))
    output = take_dense(checkpoint, f"heads.{name}.{1 if layers == 1 else 4}", outputs, hidden, biased=biased)
    pooling: PoolingKind = "pooler" if config.get("use_pooler", False) else "first"
    return SavedHead(create_head(output, "tokens" if task_type in TOKEN_TYPES else pooling, dense), task_type=task_type)


def _check_own(checkpoint: Checkpoint, name: str, backbone: Backbone) -> None:
    """Refuses a language-model head that is not the backbone's, because all tasks share that one."""
    saved = checkpoint.take(name, None, backbone.config.hidden_size)
    own: Tensor = backbone.t5.lm_head.weights()[0].cpu()
    if len(saved) < len(own) or not torch.allclose(saved[: len(own)], own, atol=1e-6):
        raise AdapterError(
            f"{checkpoint.where}: tensor {name!r} is not the backbone's own; a T5 answers with its frozen output layer"
        )
