"""The output layer of a foreign checkpoint for an encoder."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from peltier_backbone.checkpoint.config import BackboneConfig, ModernBertConfig
from torch import Tensor

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.shared.checkpoint import Checkpoint
from peltier_adapters.importers.shared.imported_part import ImportedPart
from peltier_adapters.spec.parts import HeadActivation, HeadSpec, Pooling
from peltier_adapters.spec.tasks import SPAN_LABELS, TaskType

_CLASSES: Mapping[str, TaskType] = {"ForTokenClassification": "token-classification", "ForQuestionAnswering": "span"}


@dataclass(frozen=True)
class Dense:
    """A torch linear layer: weight [out, in], bias [out]."""

    weight: Tensor
    bias: Tensor


def take_dense(checkpoint: Checkpoint, name: str, out: int | None, width: int | None) -> Dense:
    """The layer `name` with a weight [out, width], where None is any size; a missing bias is zeros."""
    weight = checkpoint.take(f"{name}.weight", out, width)
    bias = checkpoint.take_if(f"{name}.bias", len(weight))
    return Dense(weight, torch.zeros(len(weight)) if bias is None else bias)


@dataclass(frozen=True)
class SavedHead:
    """A saved head. `piece` is None if there is no head or if it is the backbone's; `labels` and `task_type` are None
    if the file does not contain them. `normalized`: its vectors get unit length."""

    piece: ImportedPart | None = None
    labels: tuple[str, ...] | None = None
    task_type: TaskType | None = None
    normalized: bool = False


def create_head(
    output: Dense, pooling: Pooling, hidden: Dense | None = None, act: HeadActivation = "tanh"
) -> ImportedPart:
    """The part of an output layer, after the layer `hidden` with the activation `act` if it is given."""
    used: HeadActivation = act if hidden is not None else "tanh"
    spec = HeadSpec(pooling=pooling, hidden=hidden is not None, activation=used, outputs=len(output.weight))
    tensors = {"weight": output.weight.T, "bias": output.bias}
    if hidden is not None:
        tensors |= {"dense.weight": hidden.weight.T, "dense.bias": hidden.bias}
    return ImportedPart(spec, tensors)


def vector_head(pooling: Pooling, config: BackboneConfig) -> ImportedPart:
    """The head of an embedding that is the pooled vector itself."""
    return ImportedPart(HeadSpec(pooling=pooling, projection=False, outputs=config.hidden_size), {})


def take_head(checkpoint: Checkpoint, config: BackboneConfig, task_type: TaskType | None = None) -> ImportedPart | None:
    """The head of a Hugging Face model, None if there is none. `qa_outputs` reads every token, and so does the
    `classifier` of a token classification; for other tasks BERT's reads the pooler, the others' the first token through
    a layer of their own. A pooler in the checkpoint becomes the head's tanh layer.
    """
    hidden = config.hidden_size
    if isinstance(config, ModernBertConfig) and "classifier.weight" in checkpoint:
        raise AdapterError(
            f"{checkpoint.where}: a ModernBERT's classifier reads a layer and a norm of its own, which are not "
            "supported; embeddings are"
        )
    if "qa_outputs.weight" in checkpoint:
        return create_head(take_dense(checkpoint, "qa_outputs", len(SPAN_LABELS), hidden), "tokens")
    if "classifier.out_proj.weight" in checkpoint:
        dense = take_dense(checkpoint, "classifier.dense", hidden, hidden)
        output = take_dense(checkpoint, "classifier.out_proj", None, hidden)
        return create_head(output, "first", dense, "gelu" if config.family == "electra" else "tanh")
    if "classifier.weight" not in checkpoint:
        return None
    output = take_dense(checkpoint, "classifier", None, hidden)
    if task_type == "token-classification":
        return create_head(output, "tokens")
    if "pre_classifier.weight" in checkpoint:
        return create_head(output, "first", take_dense(checkpoint, "pre_classifier", hidden, hidden), "relu")
    if config.family == "distilbert":
        raise AdapterError(
            f"{checkpoint.where}: its classifier reads 'pre_classifier', which the checkpoint does not have; save both"
        )
    if "pooler.dense.weight" in checkpoint:
        return create_head(output, "first", take_dense(checkpoint, "pooler.dense", hidden, hidden))
    return create_head(output, "pooler")


def type_of_class(name: object) -> TaskType | None:
    """The type of the tasks of a transformers class, such as `BertForTokenClassification`; None for other classes, and
    for sequence classification, whose type depends on its outputs."""
    found = (kind for ending, kind in _CLASSES.items() if isinstance(name, str) and name.endswith(ending))
    return next(found, None)


def label_names(ids: object) -> tuple[str, ...] | None:
    """Names in the order of their ids; None if they are only LABEL_0, LABEL_1, …"""
    if not isinstance(ids, dict) or sorted(ids.values(), key=str) != sorted(range(len(ids)), key=str):
        return None
    names = sorted(ids, key=lambda name: int(ids[name]))
    return None if all(re.fullmatch(r"LABEL_\d+", name) for name in names) else tuple(names)
