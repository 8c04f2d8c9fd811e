"""Reads the head of a model of transformers or sentence-transformers, for an adapter that was saved without one."""

from dataclasses import replace
from pathlib import Path

from peltier_backbone.checkpoint.config import BackboneConfig

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.shared.checkpoint import find_file, read_checkpoint
from peltier_adapters.importers.shared.config_file import read_config
from peltier_adapters.importers.shared.head import SavedHead, label_names, take_head, type_of_class
from peltier_adapters.importers.shared.module_sites import base_names
from peltier_adapters.importers.shared.sentence_head import MODULES_FILE, read_sentence_head
from peltier_adapters.spec.tasks import TaskType

_FILES = ("model.safetensors", "pytorch_model.bin", "model_head.safetensors", "pytorch_model_head.bin")


def read_plain_head(path: Path, task_type: TaskType | None, config: BackboneConfig) -> SavedHead:
    """The head in the file or directory `path`. The class in a directory's `config.json` decides what the head reads,
    or else `task_type`."""
    if (path / MODULES_FILE).is_file():
        return read_sentence_head(path, config)
    described = _describe(path, task_type)
    checkpoint = read_checkpoint(find_file(path, _FILES)).renamed(base_names)
    head = take_head(checkpoint, config, described.task_type)
    if head is None:
        raise AdapterError(
            f"{path} has no tensor 'classifier.weight', 'classifier.out_proj.weight' or 'qa_outputs.weight'"
        )
    return replace(described, piece=head)


def _describe(path: Path, task_type: TaskType | None) -> SavedHead:
    """What the model's configuration says of its head."""
    if not (path / "config.json").is_file():
        return SavedHead(task_type=task_type)
    config = read_config(path / "config.json")
    named, labels = config.get("architectures", []), label_names(config.get("label2id"))
    if not isinstance(named, list) or not named:
        return SavedHead(labels=labels, task_type=task_type)
    several = config.get("problem_type") == "multi_label_classification"
    return SavedHead(labels=labels, task_type=type_of_class(named[0]) or ("multilabel" if several else None))
