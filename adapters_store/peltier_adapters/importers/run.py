"""Imports a foreign adapter as an artifact, with options for its task, which its checkpoint does not describe."""

import json
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from peltier_backbone.backbone import Backbone
from pydantic import TypeAdapter, ValidationError

from peltier_adapters.artifact.artifact import Artifact, read_artifact
from peltier_adapters.artifact.label_tree import target_problems
from peltier_adapters.artifact.manifest import TaskInput, TrainingRecord
from peltier_adapters.errors import AdapterError, sentences
from peltier_adapters.golden.proof import Candidate, prove
from peltier_adapters.importers.peft import read_peft
from peltier_adapters.importers.shared.head import MODULES_FILE, read_plain_head, read_sentence_head, vector_head
from peltier_adapters.importers.shared.imported import ImportedAdapter, SavedHead
from peltier_adapters.importers.splade import read_splade
from peltier_adapters.spec.head import MAX_TERMS, MIN_TERMS
from peltier_adapters.spec.parts import HeadSpec, PoolingKind, part_problems, position_offset
from peltier_adapters.spec.tasks import EMBEDDING_TYPES, INPUTS_OF, SPAN_LABELS, TOKEN_HEAD_TYPES, TaskSpec, TaskType

logger = logging.getLogger(__name__)
_MAX_EXAMPLES = 64
_SENTENCES = (
    "The weather was fine, so we walked along the river until it was dark.",
    "I would not order this again.",
    "Prices rose by three percent last year, said the bank.",
    "When does the next train leave?",
)
# The types with one output, and the name of its label.
_ONE_LABEL = {"regression": "value", "ranking": "score"}
_TEMPLATES = {"single": "{text}", "pair": "sentence1: {text} sentence2: {pair}"}
_TEMPLATES["triple"] = _TEMPLATES["pair"] + " sentence3: {third}"
# `extensions/` adds more.
READERS: dict[str, Callable[[Path, Backbone], ImportedAdapter]] = {
    "peft": read_peft,
    "splade": read_splade,
}


@dataclass(frozen=True)
class TaskOptions:
    """Options of the task. Their defaults: `task_type` is that of the checkpoint's head, or follows from its outputs
    (one output is a regression); on a T5 it is classification with labels and text2text without. `inputs` are those of
    the type, or single. `labels` are those of the checkpoint, or "0", "1", …; `targets` on a T5 are the positions of
    the labels; `template` is the plain text; `pooling` is that of the checkpoint, which no other may replace, or of the
    backbone; `terms` is the maximum of a sparse embedding, or `DEFAULT_TERMS`."""

    inputs: str | None = None
    task_type: TaskType | None = None
    labels: tuple[str, ...] | None = None
    template: str | None = None
    targets: tuple[str, ...] | None = None
    max_length: int = 128
    max_new_tokens: int = 64
    completion_temperature: float = 1.0
    pooling: PoolingKind | None = None
    stride: int | None = None
    terms: int | None = None

    def task(self, foreign: ImportedAdapter, backbone: Backbone) -> TaskSpec:
        """The task of an imported adapter; raises `AdapterError` for invalid options."""
        fields = self._text_fields() if backbone.config.generates else self._encoder_fields(foreign)
        longest = backbone.config.max_tokens - position_offset(foreign.parts)
        inputs = self.inputs or INPUTS_OF.get(fields["type"], "single")
        fields |= {"inputs": inputs, "max_length": min(self.max_length, longest), "stride": self.stride}
        try:
            task = TaskSpec.model_validate(fields)
        except ValidationError as error:
            raise AdapterError(f"task {'; '.join(sentences(error))}") from None
        problems = target_problems(task, backbone) if task.targets else []
        if problems:
            raise AdapterError(problems[0])
        return task

    def _encoder_fields(self, foreign: ImportedAdapter) -> dict[str, Any]:
        given = [name for name in ("template", "targets") if getattr(self, name) is not None]
        if given:
            raise AdapterError(f"{given[0]} is an option of T5; this backbone answers with a head")
        assert foreign.head is not None, "`_with_head` has added a head"
        head = foreign.head.spec
        assert isinstance(head, HeadSpec)
        kind = self._type(foreign.task_type, head)
        if kind == "multi-vector-embedding" or (kind == "sparse-embedding") != (head.terms is not None):
            raise AdapterError(f"task type {kind} does not fit the checkpoint's head, which {_reads(head)}")
        if (kind in TOKEN_HEAD_TYPES) != (head.pooling == "tokens"):
            raise AdapterError(f"task type {kind} does not fit the checkpoint's head, which {_reads(head)}")
        labels = self._labels(kind, foreign, head.outputs)
        return {"type": kind, "labels": labels, "padded": foreign.padded, "normalized": foreign.normalized}

    def _type(self, saved: TaskType | None, head: HeadSpec) -> TaskType:
        """The type of the options, which must be that of the checkpoint's head if that is known. A head of one output
        may rank."""
        ranks = self.task_type == "ranking" and head.outputs == 1 and head.pooling != "tokens"
        if None not in (self.task_type, saved) and self.task_type != saved and not ranks:
            raise AdapterError(f"task type {self.task_type} was given; the checkpoint's head is for {saved}")
        return self.task_type or saved or _type_of(head)

    def _labels(self, kind: str, foreign: ImportedAdapter, outputs: int) -> tuple[str, ...]:
        saved = foreign.labels
        if isinstance(saved, AdapterError):
            if not self.labels:
                raise saved
            logger.warning("%s; the labels are those that were given: %s", saved, ", ".join(self.labels))
            saved = None
        if kind in EMBEDDING_TYPES:
            return self.labels or ()
        if kind == "span":
            return self.labels or SPAN_LABELS
        if kind in _ONE_LABEL:
            if outputs != 1:
                raise AdapterError(f"a {kind} has one output; the checkpoint's head has {outputs}")
            return self.labels or (_ONE_LABEL[kind],)
        if self.labels and saved and self.labels != saved and set(self.labels) == set(saved):
            raise AdapterError(
                f"labels {', '.join(self.labels)} were given; the checkpoint's head has them in another order: "
                f"{', '.join(saved)}"
            )
        labels = self.labels or saved or tuple(map(str, range(outputs)))
        if len(labels) != outputs:
            raise AdapterError(f"{len(labels)} labels were given; the checkpoint's head has {outputs} outputs")
        if not self.labels and not saved:
            logger.warning(
                "the checkpoint names no labels, so they are %s to %s; --labels names them", labels[0], labels[-1]
            )
        return labels

    def _text_fields(self) -> dict[str, Any]:
        kind = self.task_type or ("classification" if self.labels else "text2text")
        labels = self.labels or (("value",) if kind == "regression" else ())
        digits = tuple(map(str, range(len(labels)))) if kind == "classification" else ()
        return {
            "type": kind,
            "labels": labels,
            "template": self.template or _TEMPLATES.get(self.inputs or "single"),
            "targets": self.targets or digits,
            "decoding": {
                "answer": "generate" if kind == "text2text" else "score",
                "max_new_tokens": self.max_new_tokens,
                "completion_temperature": self.completion_temperature,
            },
        }


def _reads(head: HeadSpec) -> str:
    if head.terms is not None:
        return "scores terms"
    return f"reads {'every token' if head.pooling == 'tokens' else 'one vector of an input'}"


def _type_of(head: HeadSpec) -> TaskType:
    """The type of a task whose checkpoint does not name it."""
    if head.pooling == "tokens":
        return "span"  # other heads that read tokens come with their type
    return "regression" if head.outputs == 1 else "classification"


def example_inputs(path: Path | None, task: TaskSpec) -> Sequence[TaskInput]:
    """The inputs of the golden examples: one per line of `path`, as text or as a JSON list of texts; without a path, a
    few neutral sentences."""
    if path is None:
        shifted = [_SENTENCES[number:] + _SENTENCES[:number] for number in range(len(_SENTENCES))]
        return [_input(texts[: task.num_texts]) for texts in shifted]
    try:
        lines = [line for line in path.read_text(encoding="utf-8").splitlines() if line.strip()]
    except (OSError, UnicodeDecodeError) as error:
        raise AdapterError(f"{path} cannot be read as text: {error}") from None
    if not 1 <= len(lines) <= _MAX_EXAMPLES:
        raise AdapterError(f"{path} has {len(lines)} examples; an artifact has from 1 to {_MAX_EXAMPLES}")
    return [_example(line, task, f"{path}:{number}") for number, line in enumerate(lines, 1)]


def _input(texts: Sequence[str]) -> TaskInput:
    return texts[0] if len(texts) == 1 else tuple(texts)  # type: ignore[return-value]


def _example(line: str, task: TaskSpec, where: str) -> TaskInput:
    if task.num_texts == 1:
        return line
    try:
        return _input(TypeAdapter(list[str]).validate_json(line))
    except ValidationError:
        raise AdapterError(f"{where} is {json.dumps(line)}; it must be a JSON list of {task.num_texts} texts") from None


@dataclass(frozen=True)
class Import:
    """An import: `origin` names the library or the authors' code, `head` a file or directory with the output layer if
    `path` has none, `examples` a file of texts for the golden examples, `source` the address that `path` is from."""

    origin: str
    path: Path
    name: str
    head: Path | None = None
    examples: Path | None = None
    options: TaskOptions = field(default_factory=TaskOptions)
    source: str | None = None


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
        foreign = _with_terms(foreign, wanted)
    elif wanted.head is not None:
        raise AdapterError(f"head {wanted.head} was given, but a T5 answers in text and has no head")
    elif wanted.options.pooling is not None:
        raise AdapterError(f"pooling {wanted.options.pooling} was given, but a T5 answers in text and has no pooling")
    elif wanted.options.terms is not None:
        raise AdapterError(f"terms {wanted.options.terms} was given, but a T5 answers in text and scores no terms")
    problems = part_problems(foreign.parts, backbone.config)
    if problems:
        raise AdapterError(f"{wanted.path} does not fit this backbone: {'; '.join(problems)}")
    task = wanted.options.task(foreign, backbone)
    adapter = Candidate(wanted.name, foreign.method, foreign.parts, foreign.tensors, task)
    source = {} if wanted.source is None else {"source": wanted.source}
    record = TrainingRecord(data={"imported": {"origin": wanted.origin, **foreign.origin, **source}})
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


def _with_terms(foreign: ImportedAdapter, wanted: Import) -> ImportedAdapter:
    """The adapter with the number of terms that the options give."""
    terms, head = wanted.options.terms, foreign.head
    if terms is None:
        return foreign
    if head is None or not isinstance(head.spec, HeadSpec) or head.spec.terms is None:
        raise AdapterError(f"terms {terms} was given, but {wanted.path} is no sparse embedding")
    if not MIN_TERMS <= terms <= MAX_TERMS:
        raise AdapterError(f"terms is {terms}; it must be from {MIN_TERMS} to {MAX_TERMS}")
    return replace(foreign, head=replace(head, spec=head.spec.model_copy(update={"terms": terms})))


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
