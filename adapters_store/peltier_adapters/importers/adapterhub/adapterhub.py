"""Reads directories that AdapterHub's `adapters` saves (docs/methods.md#adapterhub): bottlenecks, Compacter, LoRA,
prefixes and unions of them, with heads. UniPELT is a union with gated members."""

import re
import reprlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import torch
from peltier_backbone.backbone import Backbone
from torch import Tensor

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.adapterhub.parts import read_bottleneck, read_lora, read_prefix
from peltier_adapters.importers.shared.checkpoint import Checkpoint, ConfigFile, find_file, read_checkpoint, read_config
from peltier_adapters.importers.shared.head import create_head, label_names, take_dense, take_head, type_of_class
from peltier_adapters.importers.shared.imported import ImportedAdapter, ImportedPart, SavedHead
from peltier_adapters.importers.shared.module_sites import base_names
from peltier_adapters.spec.parts import PoolingKind
from peltier_adapters.spec.tasks import SPAN_LABELS, TOKEN_TYPES, TaskType

_FILES = ("adapter.safetensors", "pytorch_adapter.bin")
_DESCRIPTION = ("model_class", "model_name", "type", "id", "config_id")
# Modules with a submodule for each adapter, by its name.
_CONTAINERS = "adapters|loras|prefix_tunings|prefix_gates|shared_parameters"
_WITHOUT_EFFECT = ("architecture", "leave_out", "init_weights_seed", "dropout", "dtype")

PartReader = Callable[[ConfigFile, Checkpoint, Backbone, str], ImportedPart]
_READERS: dict[str, PartReader] = {
    "bottleneck": read_bottleneck,
    "lora": read_lora,
    "prefix_tuning": read_prefix,
}
# In the order in which the parts act, as in Peltier's presets.
_ORDER = ("prefix_tuning", "lora", "bottleneck")
_HEAD_CONFIG = "head_config.json"
_HEAD_FILES = ("model_head.safetensors", "pytorch_model_head.bin")
# Task types by AdapterHub's name of a head. Where it is None, the type follows from the outputs: one is a regression.
_HEAD_TYPES: Mapping[str, TaskType | None] = {
    "classification": None,
    "multilabel_classification": "multilabel",
    "tagging": "token-classification",
    "question_answering": "span",
}
_HEAD_DESCRIPTION = ("name", "model_type", "model_name", "hidden_size", "version", "num_labels")


@dataclass(frozen=True)
class _Saved:
    """The outer settings of a saved adapter."""

    outer: ConfigFile
    name: str
    version: str


def read_adapterhub(path: Path, backbone: Backbone) -> ImportedAdapter:
    """The adapter in directory `path`; raises `AdapterError` for what is not supported."""
    saved = _read_outer(path, backbone)
    members = _members(saved)
    checkpoint = _named(read_checkpoint(find_file(path, _FILES)), saved.name)
    pieces = [_read(kind, members[kind], checkpoint, backbone, saved) for kind in _ORDER if kind in members]
    checkpoint.finish()
    gated = [piece for piece in pieces if getattr(piece.spec, "gated", False)]
    if gated and backbone.config.generates:
        raise AdapterError(
            f"{saved.outer.where}: AdapterHub's gates average over the whole answer, but during generation a T5 knows "
            "only its beginning; on a T5 only adapters without gates are supported"
        )
    head = _read_head(path, saved.name, backbone)
    origin = {"library": "adapterhub", "version": saved.version, "name": saved.name}
    method = "unipelt" if len(gated) == len(pieces) > 1 else "-".join(members)
    return ImportedAdapter(f"adapterhub-{method}", pieces, head.piece, head.labels, head.task_type, origin)


def _read_outer(path: Path, backbone: Backbone) -> _Saved:
    outer, config = read_config(find_file(path, ("adapter_config.json",))), backbone.config
    for key, own in (("model_type", config.family), ("hidden_size", config.hidden_size)):
        found = outer.get(key, own)
        if found != own:
            raise AdapterError(f"{outer.where}: {key} is {found!r}; this backbone's is {own!r}")
    name = outer.get("name")
    if not isinstance(name, str):
        raise AdapterError(f"{outer.where}: name is {name!r}; it must be the adapter's name")
    version = str(outer.get("version", "unknown"))
    outer.ignore("config", *_DESCRIPTION)
    outer.finish()
    return _Saved(outer, name, version)


def _members(saved: _Saved) -> dict[str, ConfigFile]:
    """The configuration of each member of a union, or of a single adapter, by its architecture."""
    config = saved.outer.get("config")
    union = isinstance(config, dict) and config.get("architecture") == "union"
    raw = config.get("configs") if isinstance(config, dict) and union else [config]
    if not isinstance(raw, list) or not raw or not all(isinstance(member, dict) for member in raw):
        raise AdapterError(f"{saved.outer.where}: config is {reprlib.repr(config)}; it must be an adapter's settings")
    members: dict[str, ConfigFile] = {}
    for member in raw:
        kind = member.get("architecture") or "bottleneck"
        if kind == "prompt_tuning":
            raise AdapterError(
                f"{saved.outer.where}: AdapterHub adds a soft prompt after an encoder's embeddings, without positions "
                "or norm; soft prompts are supported only on a T5"
            )
        if not isinstance(kind, str) or kind not in _READERS or kind in members:
            twice = " twice" if kind in [*members] else ""
            raise AdapterError(
                f"{saved.outer.where}: architecture {kind!r} is not supported{twice}; it is one of "
                f"{', '.join(_READERS)}, or a union of them"
            )
        members[kind] = ConfigFile({**member, "version": saved.version}, saved.outer.where)
    return members


def _named(checkpoint: Checkpoint, name: str) -> Checkpoint:
    """Names below the base model, with `T` for the adapter's name, without the copies of a prefix in each layer
    (docs/methods.md#adapterhub)."""
    checkpoint.skip(r".*\.prefix_tuning\.pool\..*")
    pattern = re.compile(rf"(^|\.)({_CONTAINERS})\.{re.escape(name)}\.")
    return checkpoint.renamed(lambda tensor_name: pattern.sub(r"\1\2.T.", base_names(tensor_name), count=1))


def _read(kind: str, config: ConfigFile, checkpoint: Checkpoint, backbone: Backbone, saved: _Saved) -> ImportedPart:
    config.ignore("version", *_WITHOUT_EFFECT)
    piece = _READERS[kind](config, checkpoint, backbone, saved.version)
    config.finish()
    return piece


def _read_head(path: Path, name: str, backbone: Backbone) -> SavedHead:
    """The head in directory `path`; raises `AdapterError` for what is not supported."""
    if not (path / _HEAD_CONFIG).is_file():
        return SavedHead()
    outer = read_config(path / _HEAD_CONFIG)
    checkpoint = read_checkpoint(find_file(path, _HEAD_FILES)).renamed(base_names)
    raw = outer.get("config")
    config = ConfigFile(raw if isinstance(raw, dict) else {}, outer.where)
    labels = label_names(config.get("label2id") if raw else outer.get("label2id"))
    plain = type_of_class(outer.get("model_class"))
    head = _flexible_head(config, checkpoint, name, backbone) if raw else _plain_head(checkpoint, plain, backbone)
    outer.ignore("label2id", *_HEAD_DESCRIPTION)
    for settings in (outer, config):
        settings.finish()
    checkpoint.finish()
    return replace(head, labels=labels)


def _plain_head(checkpoint: Checkpoint, task_type: TaskType | None, backbone: Backbone) -> SavedHead:
    if backbone.config.generates:
        _check_own(checkpoint, "lm_head.weight", backbone)
        return SavedHead()
    head = take_head(checkpoint, backbone.config, task_type)
    if head is None:
        raise AdapterError(f"{checkpoint.where} has no classifier, which an encoder needs")
    return SavedHead(head, task_type=task_type)


def _flexible_head(config: ConfigFile, checkpoint: Checkpoint, name: str, backbone: Backbone) -> SavedHead:
    kind = config.get("head_type")
    config.ignore("num_labels", "vocab_size", "bias", "dropout_prob")  # the tensors have the sizes and biases
    if backbone.config.generates and kind == "seq2seq_lm":
        config.only("layers", 1)
        config.only("layer_norm", False)
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
    output = take_dense(checkpoint, f"heads.{name}.{1 if layers == 1 else 4}", outputs, hidden)
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
