"""Options for the task of an imported adapter, which its checkpoint does not describe."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peltier_backbone.backbone import Backbone
from pydantic import TypeAdapter, ValidationError

from peltier_adapters.artifact.label_tree import target_problems
from peltier_adapters.artifact.manifest import TaskInput
from peltier_adapters.errors import AdapterError, sentences
from peltier_adapters.importers.shared.imported import ImportedAdapter
from peltier_adapters.spec.parts import HeadSpec, PoolingKind, position_offset
from peltier_adapters.spec.tasks import INPUTS_OF, SPAN_LABELS, TOKEN_TYPES, TaskSpec, TaskType

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


@dataclass(frozen=True)
class TaskOptions:
    """Options of the task. Their defaults: `task_type` is that of the checkpoint's head, or follows from its outputs
    (one output is a regression); on a T5 it is classification with labels and text2text without. `inputs` are those of
    the type, or single. `labels` are those of the checkpoint, or "0", "1", …; `targets` on a T5 are the positions of
    the labels; `template` is the plain text; `pooling` is that of the checkpoint, which no other may replace, or of the
    backbone."""

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
        kind = self.task_type or foreign.task_type or _type_of(head)
        if (kind in TOKEN_TYPES) != (head.pooling == "tokens"):
            reads = "every token" if head.pooling == "tokens" else "one vector of an input"
            raise AdapterError(f"task type {kind} does not fit the checkpoint's head, which reads {reads}")
        labels = self._labels(kind, foreign, head.outputs)
        return {"type": kind, "labels": labels, "padded": foreign.padded, "normalized": foreign.normalized}

    def _labels(self, kind: str, foreign: ImportedAdapter, outputs: int) -> tuple[str, ...]:
        if kind == "embedding":
            return self.labels or ()
        if kind == "span":
            return self.labels or SPAN_LABELS
        if kind in _ONE_LABEL:
            if outputs != 1:
                raise AdapterError(f"a {kind} has one output; the checkpoint's head has {outputs}")
            return self.labels or (_ONE_LABEL[kind],)
        labels = self.labels or foreign.labels or tuple(map(str, range(outputs)))
        if len(labels) != outputs:
            raise AdapterError(f"{len(labels)} labels were given; the checkpoint's head has {outputs} outputs")
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
