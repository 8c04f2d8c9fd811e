"""An artifact's metrics on labelled data."""

from collections.abc import Sequence
from dataclasses import replace

import torch
from peltier_adapters.artifact.artifact import Artifact
from peltier_adapters.batch.row import Row
from peltier_adapters.inputs import Reader, encode_input
from peltier_adapters.residency.bank import Banks, Resident
from peltier_adapters.spec.tasks import TaskSpec
from peltier_backbone.backbone import Backbone
from torch import Tensor

from peltier_training.data.examples import Example
from peltier_training.data.labels import Labels
from peltier_training.data.span_rows import context_windows
from peltier_training.data.tag_rows import tag_text
from peltier_training.evaluate import embedding_examination, metrics, text_examination
from peltier_training.evaluate.entity_examination import judge_tags
from peltier_training.evaluate.evaluation import Evaluation, mean_gates
from peltier_training.evaluate.scores import run_rows
from peltier_training.evaluate.span_examination import judge_spans


def evaluate(backbone: Backbone, artifact: Artifact, examples: Sequence[Example]) -> dict[str, float]:
    """The metrics of the artifact's task type; on T5 its `loss` too."""
    return dict(examine(backbone, artifact, examples).metrics)


def examine(
    backbone: Backbone, artifact: Artifact, examples: Sequence[Example], *, record_gates: bool = False
) -> Evaluation:
    """The metrics and the answers."""
    resident, task = Banks(backbone).add(artifact), artifact.manifest.task
    if backbone.config.generates:
        return text_examination.examine(backbone, task, resident, examples, record_gates=record_gates)
    if task.type == "embedding":
        return embedding_examination.examine(backbone, task, resident, examples, record_gates=record_gates)
    if task.type == "span":
        return _examine_spans(backbone, task, resident, examples, record_gates)
    if task.type == "token-classification":
        return _examine_tags(backbone, task, resident, examples, record_gates)
    rows = [Row(encode_input(backbone, task, example.input), resident) for example in examples]
    outputs = run_rows(backbone, rows, record_gates=record_gates)
    scores = torch.stack([output.logits for output in outputs])
    return replace(judge_scores(backbone, task, scores, examples), gates=mean_gates(outputs))


def _examine_spans(
    backbone: Backbone, task: TaskSpec, resident: Resident, examples: Sequence[Example], record_gates: bool
) -> Evaluation:
    windows = [context_windows(backbone, task, example) for example in examples]
    outputs = run_rows(backbone, [Row(row, resident) for rows in windows for row in rows], record_gates=record_gates)
    judged = judge_spans(task, examples, windows, [output.logits for output in outputs])
    return replace(judged, gates=mean_gates(outputs))


def _examine_tags(
    backbone: Backbone, task: TaskSpec, resident: Resident, examples: Sequence[Example], record_gates: bool
) -> Evaluation:
    texts = [tag_text(backbone, task, example) for example in examples]
    rows = [Row(row, resident) for text in texts for row in text.rows]
    outputs = run_rows(backbone, rows, record_gates=record_gates)
    judged = judge_tags(task, examples, texts, [output.logits for output in outputs])
    return replace(judged, gates=mean_gates(outputs))


def judge_scores(backbone: Reader, task: TaskSpec, scores: Tensor, examples: Sequence[Example]) -> Evaluation:
    """The evaluation of scores [rows, outputs]: an encoder's logits ([pairs, 2, outputs] of an embedding), or a T5's
    scores of its target texts."""
    if backbone.config.generates:
        return text_examination.judge_targets(task, scores.argmax(-1), examples)
    if task.type == "embedding":
        return embedding_examination.judge_pairs(task, scores, examples)
    targets = Labels(task.type, task.labels).targets(examples)
    return Evaluation(
        metrics=metrics.compute(task.type, scores.numpy(), targets.numpy()),
        inputs=[example.input for example in examples],
        gold=_gold(task, targets).tolist(),
        found=_answers(task, scores).tolist(),
        scores=scores,
    )


def _gold(task: TaskSpec, targets: Tensor) -> Tensor:
    """The right answers: targets without the numbers of a ranking's queries."""
    match task.type:
        case "multilabel":
            return targets.int()
        case "ranking":
            return targets[:, 0]
    return targets


def _answers(task: TaskSpec, logits: Tensor) -> Tensor:
    """The answers of logits, in the form of the targets."""
    match task.type:
        case "classification":
            return logits.argmax(-1)
        case "multilabel":
            return (logits > 0).int()
        case "regression" | "ranking":
            return logits[:, 0]
    raise AssertionError("texts are written, not chosen")
