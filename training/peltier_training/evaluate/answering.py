"""The answers of an artifact to inputs without labels, by the forward that a server uses."""

from collections.abc import Sequence
from typing import Any

from peltier_adapters.answers import embeddings, terms, vectors
from peltier_adapters.answers.entities import find_entities, join_windows, tag_row
from peltier_adapters.answers.labels import answer, ranking_answer
from peltier_adapters.answers.spans import best_span
from peltier_adapters.artifact.artifact import Artifact
from peltier_adapters.artifact.label_tree import build_label_tree
from peltier_adapters.artifact.manifest import TaskInput
from peltier_adapters.batch.row import Row, RowOutput
from peltier_adapters.inputs import LongTexts, encode_input, encode_windows
from peltier_adapters.residency.bank import Banks, Resident
from peltier_adapters.spec.tasks import SpanSpec, TaskSpec
from peltier_backbone.backbone import Backbone
from peltier_backbone.text.tokenizer import Tokenizer
from torch import Tensor

from peltier_training.evaluate.evaluation import run_rows
from peltier_training.evaluate.texts import write


def answer_all(backbone: Backbone, artifact: Artifact, inputs: Sequence[TaskInput]) -> list[dict[str, Any]]:
    """One answer per input, by the names of a prediction's fields. Raises an `InputError` for an input that does not
    fit the task, and a `NotFiniteError`."""
    resident, task = Banks(backbone).add(artifact), artifact.manifest.task
    if not inputs:
        return []
    if task.reads_tokens:
        return _answer_windows(backbone, task, resident, inputs)
    encoded = [encode_input(backbone, task, value) for value in inputs]
    if task.decoding is not None and (task.type == "text2text" or task.decoding.answer == "generate"):
        return [vars(found) for found in write(backbone, task, [Row(tokens, resident) for tokens in encoded])]
    tree = build_label_tree(task, backbone)
    outputs = run_rows(backbone, [Row(tokens, resident, tree=tree) for tokens in encoded])
    return [_answer_row(task, output.logits, backbone.tokenizer) for output in outputs]


def _answer_row(task: TaskSpec, logits: Tensor, tokenizer: Tokenizer) -> dict[str, Any]:
    if task.type == "ranking":
        return ranking_answer(logits)
    if task.type == "embedding":
        return {"embedding": embeddings.to_list(embeddings.read(task, logits))}
    if task.type == "sparse-embedding":
        return {"terms": terms.answer(terms.read(logits), tokenizer)}
    if task.type == "multi-vector-embedding":
        return {"vectors": vectors.to_lists(vectors.read(logits))}
    return answer(task, logits)


def _answer_windows(
    backbone: Backbone, task: TaskSpec, resident: Resident, inputs: Sequence[TaskInput]
) -> list[dict[str, Any]]:
    """The answers of a head of every token, whose inputs may have several windows."""
    windows = [
        [Row(row, resident) for row in encode_windows(backbone, task, value, LongTexts(stride=task.stride))]
        for value in inputs
    ]
    outputs = iter(run_rows(backbone, [row for rows in windows for row in rows]))
    read = _read_span if task.type == "span" else _read_entities
    return [read(task, value, rows, [next(outputs) for _ in rows]) for value, rows in zip(inputs, windows, strict=True)]


def _read_span(task: TaskSpec, value: TaskInput, rows: Sequence[Row], outputs: Sequence[RowOutput]) -> dict[str, Any]:
    windows = [(row.encoded, output.logits) for row, output in zip(rows, outputs, strict=True)]
    return best_span(value[-1], windows, task.span or SpanSpec())._asdict()


def _read_entities(
    task: TaskSpec, value: TaskInput, rows: Sequence[Row], outputs: Sequence[RowOutput]
) -> dict[str, Any]:
    assert isinstance(value, str), "a token classification has single texts"
    tags = [tag_row(row, output).tags for row, output in zip(rows, outputs, strict=True)]
    entities = find_entities(task.labels, join_windows([row.encoded for row in rows], tags), "first")
    found = [
        {"start": start, "end": end, "text": value[start:end], "label": label, "score": score}
        for start, end, label, score in entities
    ]
    return {"entities": found}
