"""Reads the heads that AdapterHub saves with an adapter: those of its own classes and of transformers."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import torch
from peltier_backbone.backbone import Backbone
from torch import Tensor

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.shared.checkpoint import Checkpoint, find_file, read_checkpoint
from peltier_adapters.importers.shared.config_file import ConfigFile, read_config
from peltier_adapters.importers.shared.head import (
    SavedHead,
    create_head,
    label_names,
    take_dense,
    take_head,
    type_of_class,
)
from peltier_adapters.importers.shared.module_sites import base_names
from peltier_adapters.spec.parts import Pooling
from peltier_adapters.spec.tasks import SPAN_LABELS, TOKEN_TYPES, TaskType

_CONFIG = "head_config.json"
_FILES = ("model_head.safetensors", "pytorch_model_head.bin")
# Task types by AdapterHub's name of a head; None depends on the outputs: one output is a regression.
_TYPES: Mapping[str, TaskType | None] = {
    "classification": None,
    "multilabel_classification": "multilabel",
    "tagging": "token-classification",
    "question_answering": "span",
}
_DESCRIPTION = ("name", "model_type", "model_name", "hidden_size", "version", "num_labels")


def read_head(path: Path, name: str, backbone: Backbone) -> SavedHead:
    """The head in directory `path`; raises `AdapterError` for what is not supported."""
    if not (path / _CONFIG).is_file():
        return SavedHead()
    outer = read_config(path / _CONFIG)
    checkpoint = read_checkpoint(find_file(path, _FILES)).renamed(base_names)
    raw = outer.get("config")
    config = ConfigFile(raw if isinstance(raw, dict) else {}, outer.where)
    labels = label_names(config.get("label2id") if raw else outer.get("label2id"))
    plain = type_of_class(outer.get("model_class"))
    head = _flexible(config, checkpoint, name, backbone) if raw else _plain(checkpoint, plain, backbone)
    outer.ignore("label2id", *_DESCRIPTION)
    for settings in (outer, config):
        settings.finish()
    checkpoint.finish()
    return replace(head, labels=labels)


def _plain(checkpoint: Checkpoint, task_type: TaskType | None, backbone: Backbone) -> SavedHead:
    if backbone.config.generates:
        _check_own(checkpoint, "lm_head.weight", backbone)
        return SavedHead()
    head = take_head(checkpoint, backbone.config, task_type)
    if head is None:
        raise AdapterError(f"{checkpoint.where} has no classifier, which an encoder needs")
    return SavedHead(head, task_type=task_type)


def _flexible(config: ConfigFile, checkpoint: Checkpoint, name: str, backbone: Backbone) -> SavedHead:
    kind = config.get("head_type")
    config.ignore("num_labels", "vocab_size", "bias", "dropout_prob")  # the tensors have the sizes and biases
    if backbone.config.generates and kind == "seq2seq_lm":
        config.only("layers", 1)
        config.only("layer_norm", False)
        config.ignore("shift_labels", "activation_function")
        _check_own(checkpoint, f"heads.{name}.0.weight", backbone)
        return SavedHead()
    if not isinstance(kind, str) or kind not in _TYPES:
        raise AdapterError(f"{config.where}: head_type is {kind!r}; supported are {', '.join(_TYPES)}")
    config.only("layers", 1, 2)
    layers, hidden = config.get("layers", 1), backbone.config.hidden_size
    dense = None
    if layers == 2:
        config.only("activation_function", "tanh")
        dense = take_dense(checkpoint, f"heads.{name}.1", hidden, hidden)
    config.ignore("activation_function")
    task_type = _TYPES[kind]
    outputs = len(SPAN_LABELS) if task_type == "span" else None
    output = take_dense(checkpoint, f"heads.{name}.{1 if layers == 1 else 4}", outputs, hidden)
    pooling: Pooling = "pooler" if config.get("use_pooler", False) else "first"
    return SavedHead(create_head(output, "tokens" if task_type in TOKEN_TYPES else pooling, dense), task_type=task_type)


def _check_own(checkpoint: Checkpoint, name: str, backbone: Backbone) -> None:
    """Refuses a language-model head that is not the backbone's, because all tasks share that one."""
    saved = checkpoint.take(name, None, backbone.config.hidden_size)
    own: Tensor = backbone.t5.lm_head.weights()[0].cpu()
    if len(saved) < len(own) or not torch.allclose(saved[: len(own)], own, atol=1e-6):
        raise AdapterError(
            f"{checkpoint.where}: tensor {name!r} is not the backbone's own; a T5 answers with its frozen output layer"
        )
