"""The report of one training run, as in its JSON file."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from peltier_adapters.artifact.manifest import BackboneRef, Manifest, TrainingRecord
from peltier_adapters.spec.maps import Spec
from peltier_adapters.spec.tasks import TaskSpec

from peltier_training.data.gold import entity_labels
from peltier_training.evaluate.evaluation import Evaluation
from peltier_training.fit.trainer import History
from peltier_training.report.answers import Confusion, LabelCounts, LabelScores, Mistake, Residuals, Sample
from peltier_training.report.caveats import Evidence, Majority, find_caveats
from peltier_training.report.cost import Cost, ParameterCounts
from peltier_training.report.merging import Merging

_VALIDATION = "eval_"
_TRAINED = ("loss", "learning_rate")
_NO_METRICS = ("runtime", "samples_per_second", "steps_per_second")


class CurvePoint(Spec):
    """A value after a number of steps, and that number in epochs."""

    step: int
    epoch: float
    value: float


class Curves(Spec):
    """`training` has the loss, a mean over the steps since the previous point, and the learning rate. `validation` has
    each metric at each validation, in the run's dtype and on the rows that choose the epoch."""

    training: dict[str, tuple[CurvePoint, ...]]
    validation: dict[str, tuple[CurvePoint, ...]]
    best_step: int | None

    @classmethod
    def create(cls, history: History) -> "Curves":
        training: dict[str, list[CurvePoint]] = {}
        validation: dict[str, list[CurvePoint]] = {}
        for name, point in _points(history):
            if name in _TRAINED:
                training.setdefault(name, []).append(point)
            elif name.startswith(_VALIDATION) and name.removeprefix(_VALIDATION) not in _NO_METRICS:
                validation.setdefault(name.removeprefix(_VALIDATION), []).append(point)
        return cls(
            training={name: tuple(points) for name, points in training.items()},
            validation={name: tuple(points) for name, points in validation.items()},
            best_step=history.best_step,
        )

    def thinned(self, most: int) -> "Curves":
        """The curves with about `most` evenly spaced points each, and those of the best step."""
        values = {
            part: {name: tuple(self._spaced(points, most))[::-1] for name, points in getattr(self, part).items()}
            for part in ("training", "validation")
        }
        return self.model_copy(update=values)

    def _spaced(self, points: Sequence[CurvePoint], most: int) -> Iterator[CurvePoint]:
        interval = max(len(points) // most, 1)
        for place, point in enumerate(reversed(points)):  # the last one is kept
            if place % interval == 0 or point.step == self.best_step:
                yield point


def _points(history: History) -> Iterator[tuple[str, CurvePoint]]:
    for entry in history.log:
        for name, value in entry.items():
            if name not in ("step", "epoch"):
                yield name, CurvePoint(step=int(entry["step"]), epoch=entry["epoch"], value=value)


class Resolved(Spec):
    """The used values of settings with a default or "auto". `steps` and `epochs` were trained, `best_step` and
    `best_epoch` were kept; `ended` is the reason for the end, which older reports lack; `pooling` is None on T5, which
    has no head."""

    device: str
    dtype: str
    threads: int | None
    pooling: str | None
    metric: str
    learning_rate: float
    batch_size: int
    max_length: int
    epochs: float
    steps: int
    best_epoch: float | None
    best_step: int | None
    ended: str | None = None

    @classmethod
    def create(cls, findings: "Findings", record: TrainingRecord) -> "Resolved":
        metric, curves, cost = findings.metric, findings.curves, findings.cost
        points = curves.validation.get(metric, ())
        best = next((point for point in points if point.step == curves.best_step), None)
        numbers = record.hyperparameters
        return cls(
            device=cost.device,
            dtype=cost.dtype,
            threads=cost.threads,
            pooling=findings.pooling,
            metric=metric,
            learning_rate=numbers["learning_rate"],
            batch_size=numbers["batch_size"],
            max_length=numbers["max_length"],
            epochs=points[-1].epoch if points else 0.0,
            steps=points[-1].step if points else 0,
            best_epoch=best.epoch if best else None,
            best_step=curves.best_step,
            ended=findings.ending,
        )


class ArtifactFile(Spec):
    """The artifact of a report."""

    file: str
    digest: str
    bytes: int


class GateMap(Spec):
    """UniPELT's gates in serving: for each part the mean over the validation set of each layer, None for a layer
    without that part. On T5 the decoder and the cross-attention have separate entries."""

    rows: int
    means: dict[str, tuple[float | None, ...]]

    @classmethod
    def create(cls, evaluation: Evaluation) -> "GateMap | None":
        if evaluation.gates is None:
            return None
        means = {part: tuple(layers) for part, layers in evaluation.gates.items()}
        return cls(rows=len(evaluation.found), means=means)


class Subject(Spec):
    """The subject of a report: the task, preset, backbone and training, and the artifact or the `reason` for none."""

    format_version: Literal[1] = 1
    name: str
    preset: str
    artifact: ArtifactFile | None = None
    reason: str | None = None
    backbone: BackboneRef
    task: TaskSpec
    training: TrainingRecord

    @classmethod
    def of_artifact(cls, path: Path, data: bytes, manifest: Manifest) -> "Subject":
        names = ("name", "preset", "backbone", "task", "training")
        file = ArtifactFile(file=path.name, digest=f"sha256:{hashlib.sha256(data).hexdigest()}", bytes=len(data))
        return cls(artifact=file, **{name: getattr(manifest, name) for name in names})


class Report(Subject):
    """Everything about one run. A baseline has a `reason` instead of an artifact. Only the answers of the task's type
    are present; only UniPELT has `gates`, and only AdaMix `merging`. `majority` is the best constant answer, to compare
    `metrics` with. Older reports lack `warnings`, `majority`, `resolved`, `label_scores` and `mistakes`."""

    metrics: dict[str, float]
    metric: str
    warnings: tuple[str, ...] = ()
    majority: Majority | None = None
    resolved: Resolved | None = None
    curves: Curves
    parameters: ParameterCounts
    cost: Cost
    confusion: Confusion | None = None
    label_counts: tuple[LabelCounts, ...] | None = None
    label_scores: tuple[LabelScores, ...] | None = None
    mistakes: tuple[Mistake, ...] | None = None
    residuals: Residuals | None = None
    samples: tuple[Sample, ...] | None = None
    gates: GateMap | None = None
    merging: Merging | None = None


@dataclass(frozen=True)
class Findings:
    """The results of a run that are not in its artifact; `pooling` is that of an encoder's head, `ending` and
    `has_converged` are those of its `History`, and `warnings` those about its rows before the first step."""

    metric: str
    ending: str
    has_converged: bool
    evaluation: Evaluation
    curves: Curves
    parameters: ParameterCounts
    cost: Cost
    pooling: str | None = None
    merging: Merging | None = None
    warnings: Sequence[str] = ()


def create_report(subject: Subject, findings: Findings) -> Report:
    evaluation, task = findings.evaluation, subject.task
    confusion = Confusion.create(evaluation, task.labels) if task.type == "classification" else None
    label_counts = LabelCounts.create(evaluation, task.labels) if task.type == "multilabel" else None
    majority = Majority.create(evaluation, task)
    return Report(
        **vars(subject),
        metrics=dict(evaluation.metrics),
        metric=findings.metric,
        warnings=(*findings.warnings, *find_caveats(_evidence(findings, task, majority))),
        majority=majority,
        resolved=Resolved.create(findings, subject.training),
        curves=findings.curves,
        parameters=findings.parameters,
        cost=findings.cost,
        confusion=confusion,
        label_counts=label_counts,
        label_scores=_label_scores(confusion, label_counts, evaluation, task),
        mistakes=Mistake.create(evaluation, task),
        residuals=Residuals.create(evaluation) if _has_numbers(evaluation, task) else None,
        samples=Sample.create(evaluation) if task.type == "text2text" else None,
        gates=GateMap.create(evaluation),
        merging=findings.merging,
    )


def _has_numbers(evaluation: Evaluation, task: TaskSpec) -> bool:
    """Whether answers and labels are numbers on one scale: of a regression, or cosines and the scores of pairs."""
    return task.type == "regression" or (task.embeds and "spearman" in evaluation.metrics)


def _evidence(findings: Findings, task: TaskSpec, majority: Majority | None) -> Evidence:
    history = findings.curves.validation.get(findings.metric, ())
    return Evidence(
        labels=task.labels,
        metric=findings.metric,
        history=tuple(point.value for point in history),
        has_converged=findings.has_converged,
        evaluation=findings.evaluation,
        task_type=task.type,
        majority=majority,
    )


def _label_scores(
    confusion: Confusion | None, label_counts: tuple[LabelCounts, ...] | None, evaluation: Evaluation, task: TaskSpec
) -> tuple[LabelScores, ...] | None:
    if task.type == "token-classification":
        return LabelScores.of_entities(evaluation, entity_labels(task.labels))
    if confusion is not None:
        return LabelScores.of_confusion(confusion)
    return None if label_counts is None else LabelScores.of_label_counts(label_counts)
