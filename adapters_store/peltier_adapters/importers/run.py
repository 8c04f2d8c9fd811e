"""Imports a foreign adapter as an artifact."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from peltier_backbone.backbone import Backbone
from pydantic import ValidationError

from peltier_adapters.artifact.artifact import Artifact, read_artifact
from peltier_adapters.artifact.manifest import TrainingRecord
from peltier_adapters.errors import AdapterError, sentences
from peltier_adapters.golden.proof import Candidate, prove
from peltier_adapters.importers.adapterhub.adapterhub import read_adapterhub
from peltier_adapters.importers.authors.adamix import read_adamix
from peltier_adapters.importers.authors.compacter import read_compacter
from peltier_adapters.importers.authors.unipelt import read_unipelt
from peltier_adapters.importers.options import TaskOptions, example_inputs
from peltier_adapters.importers.peft import read_peft
from peltier_adapters.importers.shared.head import MODULES_FILE, read_plain_head, read_sentence_head, vector_head
from peltier_adapters.importers.shared.imported import ImportedAdapter, SavedHead
from peltier_adapters.spec.parts import part_problems

READERS: Mapping[str, Callable[[Path, Backbone], ImportedAdapter]] = {
    "adapterhub": read_adapterhub,
    "peft": read_peft,
    "compacter": read_compacter,
    "unipelt": read_unipelt,
    "adamix": read_adamix,
}


@dataclass(frozen=True)
class Import:
    """An import: `origin` names the library or the authors' code, `head` a file or directory with the output layer if
    `path` has none, `examples` a file of texts for the golden examples."""

    origin: str
    path: Path
    name: str
    head: Path | None = None
    examples: Path | None = None
    options: TaskOptions = field(default_factory=TaskOptions)


def import_adapter(wanted: Import, backbone: Backbone) -> Artifact:
    """The artifact, with golden examples from `backbone`; an `AdapterError` says what was found and expected."""
    if wanted.origin not in READERS:
        raise AdapterError(f"origin {wanted.origin!r} is unknown; it is one of {', '.join(READERS)}")
    try:
        return _import(wanted, backbone)
    except ValidationError as error:  # a part or a manifest has a value beyond its bounds
        part = error.title.removesuffix("Spec").lower()
        raise AdapterError(f"{wanted.path} cannot be served: {part} {'; '.join(sentences(error))}") from None


def _import(wanted: Import, backbone: Backbone) -> Artifact:
    foreign = READERS[wanted.origin](wanted.path, backbone)
    if not backbone.config.generates:
        foreign = _with_head(foreign, wanted, backbone)
        _check_pooling(foreign, wanted)
    elif wanted.head is not None:
        raise AdapterError(f"head {wanted.head} was given, but a T5 answers in text and has no head")
    elif wanted.options.pooling is not None:
        raise AdapterError(f"pooling {wanted.options.pooling} was given, but a T5 answers in text and has no pooling")
    problems = part_problems(foreign.parts, backbone.config)
    if problems:
        raise AdapterError(f"{wanted.path} does not fit this backbone: {'; '.join(problems)}")
    task = wanted.options.task(foreign, backbone)
    adapter = Candidate(wanted.name, foreign.method, foreign.parts, foreign.tensors, task)
    record = TrainingRecord(data={"imported": {"origin": wanted.origin, **foreign.origin}})
    return read_artifact(prove(backbone, adapter, example_inputs(wanted.examples, task), record), backbone)


def _with_head(foreign: ImportedAdapter, wanted: Import, backbone: Backbone) -> ImportedAdapter:
    """The adapter with a head: its own, that of `--head`, or for an embedding only a pooling."""
    if wanted.head is not None:
        if foreign.head is not None:
            raise AdapterError(f"{wanted.path} has its own head; --head {wanted.head} is for checkpoints without one")
        return foreign.with_head(read_plain_head(wanted.head, wanted.options.task_type, backbone.config), wanted.head)
    if foreign.head is not None:
        return foreign
    if (wanted.options.task_type or foreign.task_type) == "embedding":
        return foreign.with_head(_pooling(wanted, backbone), wanted.path)
    raise AdapterError(
        f"{wanted.path} has an adapter but no head; give the file or directory with the classifier's tensors with "
        "--head"
    )


def _check_pooling(foreign: ImportedAdapter, wanted: Import) -> None:
    """Refuses a `--pooling` that differs from the head's."""
    own = getattr(foreign.head and foreign.head.spec, "pooling", None)
    if wanted.options.pooling not in (None, own):
        raise AdapterError(
            f"{wanted.head or wanted.path} has a head with the pooling {own}, and --pooling is "
            f"{wanted.options.pooling}; --pooling is for embeddings without a head"
        )


def _pooling(wanted: Import, backbone: Backbone) -> SavedHead:
    """The head of an embedding, by the adapter's own directory, --pooling, or else the backbone's pooling."""
    config = backbone.config
    if (wanted.path / MODULES_FILE).is_file():
        return read_sentence_head(wanted.path, config)
    pooling = wanted.options.pooling or config.sentence_pooling
    if pooling is None:
        raise AdapterError(
            f"{wanted.path} does not say how its embeddings are pooled; give --pooling first, mean or max"
        )
    return SavedHead(vector_head(pooling, config), (), "embedding", normalized=True)
