"""The output layer for an encoder: that of a foreign checkpoint. For an adapter that was saved without one, that of a
model of transformers or sentence-transformers."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from peltier_backbone.checkpoint.config import BackboneConfig, EuroBertConfig, ModernBertConfig, load_config
from peltier_backbone.checkpoint.sentence_files import read_sentence_pooling
from peltier_backbone.errors import BackboneError
from torch import Tensor

from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.shared.checkpoint import Checkpoint, ConfigFile, find_file, read_checkpoint, read_config
from peltier_adapters.importers.shared.imported import ImportedPart, SavedHead
from peltier_adapters.importers.shared.labels import read_labels, type_of_problem
from peltier_adapters.importers.shared.module_sites import base_names
from peltier_adapters.importers.shared.peft_modules import POOLED_CLASSIFIERS
from peltier_adapters.spec.parts import HeadActivation, HeadSpec, PoolingKind
from peltier_adapters.spec.tasks import SPAN_LABELS, TOKEN_TYPES, TaskType

_CLASSES: Mapping[str, TaskType] = {"ForTokenClassification": "token-classification", "ForQuestionAnswering": "span"}
OUTPUT_LAYERS = "'classifier.weight', 'classifier.out_proj.weight' or 'qa_outputs.weight'"
# Tensors of a whole model, which has its own pooler.
_OF_MODEL = r"embeddings\..*|pooler\..*"
_CHOICES = "ForMultipleChoice"
_MODEL_FILES = ("model.safetensors", "pytorch_model.bin", "model_head.safetensors", "pytorch_model_head.bin")
MODULES_FILE = "modules.json"
_DENSE_FILES = ("model.safetensors", "pytorch_model.bin")
# What ModernBERT's classifier reads, by its names in the checkpoint.
NORMED_HEAD = ("head.dense.weight", "head.norm.weight")
_KNOWN_MODULES = ("Transformer", "Pooling", "Dense", "Normalize")


@dataclass(frozen=True)
class Dense:
    """A torch linear layer: weight [out, in], bias [out]."""

    weight: Tensor
    bias: Tensor


def take_dense(checkpoint: Checkpoint, name: str, out: int | None, width: int | None, *, biased: bool = True) -> Dense:
    """The layer `name` with a weight [out, width], where None is any size, and with a bias if it is `biased`."""
    weight = checkpoint.take(f"{name}.weight", out, width)
    if biased:
        return Dense(weight, checkpoint.take(f"{name}.bias", len(weight)))
    if f"{name}.bias" in checkpoint:
        raise AdapterError(f"{checkpoint.where} has the tensor '{name}.bias'; its configuration says that it has none")
    return Dense(weight, torch.zeros(len(weight)))


def create_head(
    output: Dense, pooling: PoolingKind, hidden: Dense | None = None, act: HeadActivation = "tanh"
) -> ImportedPart:
    """The part of an output layer, after the layer `hidden` with the activation `act` if it is given."""
    used: HeadActivation = act if hidden is not None else "tanh"
    spec = HeadSpec(pooling=pooling, hidden=hidden is not None, activation=used, outputs=len(output.weight))
    tensors = {"weight": output.weight.T, "bias": output.bias}
    if hidden is not None:
        tensors |= {"dense.weight": hidden.weight.T, "dense.bias": hidden.bias}
    return ImportedPart(spec, tensors)


def vector_head(pooling: PoolingKind, config: BackboneConfig) -> ImportedPart:
    """The head of an embedding that is the pooled vector itself."""
    return ImportedPart(HeadSpec(pooling=pooling, projection=False, outputs=config.hidden_size), {})


def take_head(checkpoint: Checkpoint, config: BackboneConfig, task_type: TaskType | None = None) -> ImportedPart | None:
    """The head of a Hugging Face model, None if there is none. `qa_outputs` reads every token, and so does the
    `classifier` of a token classification; for other tasks BERT's reads the pooler, the others' the first token through
    a layer of their own. A pooler in the checkpoint becomes the head's tanh layer. ModernBERT's is `take_normed_head`.
    """
    hidden = config.hidden_size
    if isinstance(config, ModernBertConfig):
        return take_normed_head(checkpoint, config, task_type)
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
    return _take_text_head(checkpoint, config, output)


def _take_text_head(checkpoint: Checkpoint, config: BackboneConfig, output: Dense) -> ImportedPart:
    """The head of whole texts whose classifier is the one layer `output`, with the layer before it."""
    hidden = config.hidden_size
    if "pre_classifier.weight" in checkpoint:
        return create_head(output, "first", take_dense(checkpoint, "pre_classifier", hidden, hidden), "relu")
    if config.family == "distilbert":
        raise AdapterError(
            f"{checkpoint.where}: its classifier reads 'pre_classifier', which the checkpoint does not have; save both"
        )
    if config.family not in POOLED_CLASSIFIERS:
        raise AdapterError(
            f"{checkpoint.where}: its classifier is one layer; that of a {config.family} for whole texts has "
            "'classifier.dense' and 'classifier.out_proj'"
        )
    if "pooler.dense.weight" in checkpoint:
        act: HeadActivation = "gelu" if config.family == "deberta-v2" else "tanh"
        return create_head(output, "first", take_dense(checkpoint, "pooler.dense", hidden, hidden), act)
    if config.family == "deberta-v2":
        raise AdapterError(
            f"{checkpoint.where}: its classifier reads 'pooler.dense', which the checkpoint does not have; save both"
        )
    return create_head(output, "pooler")


def _take_eurobert_head(checkpoint: Checkpoint, config: EuroBertConfig, task_type: TaskType | None) -> ImportedPart:
    """The classifier of tokens of a EuroBERT. That of a whole text reads the mean of its tokens' logits, which no head
    does."""
    if task_type != "token-classification":
        raise AdapterError(f"{checkpoint.where}: of a EuroBERT's classifiers only that of TOKEN_CLS is supported")
    return create_head(take_dense(checkpoint, "classifier", None, config.hidden_size), "tokens")


def take_normed_head(
    checkpoint: Checkpoint, config: ModernBertConfig, task_type: TaskType | None
) -> ImportedPart | None:
    """The head of a ModernBERT: a dense layer, a norm and a classifier. It reads every token in a task of tokens, else
    the vector that `classifier_pooling` of its `config.json` names."""
    if "classifier.weight" not in checkpoint:
        return None
    if isinstance(config, EuroBertConfig):
        return _take_eurobert_head(checkpoint, config, task_type)
    hidden, act = config.hidden_size, config.classifier_activation
    lacking = [name for name in NORMED_HEAD if name not in checkpoint]
    if lacking:
        raise AdapterError(
            f"{checkpoint.where}: its classifier reads {lacking[0]!r}, which neither the checkpoint nor the backbone's "
            "files have; save it with modules_to_save=['head', 'classifier']"
        )
    if act != "gelu":
        raise AdapterError(f"{checkpoint.where}: classifier_activation is {act!r}; supported is 'gelu'")
    output = create_head(
        take_dense(checkpoint, "classifier", None, hidden),
        "tokens" if task_type in TOKEN_TYPES else config.classifier_pooling,
        take_dense(checkpoint, "head.dense", hidden, hidden, biased=config.classifier_biased),
        "gelu",
    )
    norm = checkpoint.take("head.norm.weight", hidden)
    return ImportedPart(output.spec.model_copy(update={"normed": True}), {**output.tensors, "norm.weight": norm})


def type_of_class(name: object) -> TaskType | None:
    """The type of the tasks of a transformers class, such as `BertForTokenClassification`; None for other classes, and
    for sequence classification, whose type depends on its outputs. Raises an `AdapterError` for multiple choice."""
    if isinstance(name, str) and name.endswith(_CHOICES):
        raise AdapterError(f"the head is that of a {name}, which scores choices; that is not supported")
    found = (kind for ending, kind in _CLASSES.items() if isinstance(name, str) and name.endswith(ending))
    return next(found, None)


def read_plain_head(path: Path, task_type: TaskType | None, config: BackboneConfig) -> SavedHead:
    """The head in the file or directory `path`. The class in a directory's `config.json` decides what the head reads,
    or else `task_type`."""
    if (path / MODULES_FILE).is_file() and not _is_cross_encoder(path):
        return read_sentence_head(path, config)
    described = (path / "config.json").is_file()
    settings = read_config(path / "config.json") if described else ConfigFile({}, path)
    named = settings.get("architectures", [])
    kind = type_of_class(named[0]) if isinstance(named, list) and named else task_type
    checkpoint = read_checkpoint(find_file(path, _MODEL_FILES)).renamed(base_names)
    head = take_head(checkpoint, _model_config(settings, path, config), kind)
    if head is None:
        raise AdapterError(f"{path} has no tensor {OUTPUT_LAYERS}")
    assert isinstance(head.spec, HeadSpec), "it is a head"
    if head.spec.pooling == "pooler" and checkpoint.matches(_OF_MODEL):
        raise AdapterError(
            f"{checkpoint.where}: its classifier reads 'pooler.dense.weight', which the checkpoint does not have; "
            "save both"
        )
    labels = read_labels(settings, head.spec.outputs)
    problem = None if head.spec.pooling == "tokens" else type_of_problem(settings, head.spec.outputs)
    return SavedHead(head, labels, problem or kind)


def _is_cross_encoder(directory: Path) -> bool:
    """Whether the modules of sentence-transformers are a classifier, which it lists since its version 6."""
    file = directory / "config_sentence_transformers.json"
    return file.is_file() and read_config(file).get("model_type") == "CrossEncoder"


def _model_config(settings: ConfigFile, directory: Path, backbone: BackboneConfig) -> BackboneConfig:
    """The configuration of the model whose head it is, or `backbone` if its directory has none."""
    if settings.get("model_type") is None:
        return backbone
    try:
        own = load_config(directory)
    except BackboneError as error:
        raise AdapterError(str(error)) from None
    if own.family != backbone.family:
        raise AdapterError(f"{settings.where}: model_type is {own.family!r}; this backbone's is {backbone.family!r}")
    if own.family == "deberta-v2":
        settings.only("pooler_hidden_act", "gelu")
    return own


def read_sentence_head(directory: Path, config: BackboneConfig) -> SavedHead:
    """The head of an embedding: the pooled vector, or one linear layer of it. Raises an `AdapterError` for other
    modules."""
    modules = read_modules(directory / MODULES_FILE)
    kinds = [kind for kind, _ in modules]
    unknown = [kind for kind in kinds if kind not in _KNOWN_MODULES or kinds.count(kind) > 1]
    if unknown or kinds != sorted(kinds, key=_KNOWN_MODULES.index):
        raise AdapterError(
            f"{directory / MODULES_FILE} has the modules {', '.join(kinds)}; "
            f"supported are {', '.join(_KNOWN_MODULES)}, in this order, each once at most"
        )
    pooling = _read_pooling(directory)
    paths = dict(modules)
    head = _read_dense(directory / paths["Dense"], pooling, config) if "Dense" in paths else None
    return SavedHead(head or vector_head(pooling, config), (), "embedding", "Normalize" in paths)


def read_modules(path: Path) -> list[tuple[str, str]]:
    """The kind and the folder of each module in a `modules.json` of sentence-transformers."""
    try:
        raw: Any = json.loads(path.read_text(encoding="utf-8"))
        return [(str(module["type"]).rpartition(".")[2], str(module["path"])) for module in raw]
    except (OSError, ValueError, RecursionError, TypeError, KeyError) as error:
        raise AdapterError(f"{path} is not a list of modules: {error!r}") from None


def _read_pooling(directory: Path) -> PoolingKind:
    try:
        pooling = read_sentence_pooling(directory)
    except BackboneError as error:
        raise AdapterError(str(error)) from None
    if pooling is None:
        raise AdapterError(f"{directory} names no pooling that is supported: the first token or the mean over tokens")
    return pooling


def _read_dense(directory: Path, pooling: PoolingKind, config: BackboneConfig) -> ImportedPart:
    """A linear layer becomes the output layer. With a tanh after it, it becomes the hidden layer before an identity."""
    settings = read_config(find_file(directory, ("config.json",)))
    checkpoint = read_checkpoint(find_file(directory, _DENSE_FILES))
    biased = bool(settings.get("bias", True))
    dense = take_dense(checkpoint, "linear", None, config.hidden_size, biased=biased)
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
