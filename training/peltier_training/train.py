"""One training run of an adapter or a baseline, from its data to its artifact and report."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import version
from typing import Any

from peltier_adapters.artifact.manifest import Manifest, TrainingRecord, read_manifest
from peltier_adapters.presets.baselines import BASELINES
from peltier_adapters.presets.composition import PresetSettings
from peltier_adapters.spec.tasks import EMBEDDING_TYPES
from tqdm import tqdm  # type: ignore[import-untyped]
from transformers import TrainerCallback

from peltier_training.baselines.learner import BaselineLearner
from peltier_training.config.preparation import Prepared, prepare
from peltier_training.config.run import Run
from peltier_training.data.examples import Example, subsample, subsample_queries
from peltier_training.data.findings import describe
from peltier_training.evaluate.evaluation import Evaluation
from peltier_training.fit.preflight import Preflight
from peltier_training.fit.trainer import History
from peltier_training.learners import AdapterLearner
from peltier_training.processes import is_first, leave_group, take_device, use_threads
from peltier_training.report.cost import Meter, ParameterCounts
from peltier_training.report.merging import Merging
from peltier_training.report.page import write_report
from peltier_training.report.report import Curves, Findings, Report, Subject, create_report

Learner = AdapterLearner | BaselineLearner
_VERSIONS = ("peltier", "torch", "transformers")


@dataclass(frozen=True)
class Learned:
    """A trained model before its final evaluation; `run` is resolved, and `warnings` are those about its rows."""

    run: Run
    learner: Learner
    history: History
    sizes: Mapping[str, Any]
    validation: Sequence[Example]
    meter: Meter
    warnings: Sequence[str] = ()


@dataclass(frozen=True)
class TrainingResult:
    """The report of a run and the manifest of its artifact, None for a baseline. Holds the trained model in memory."""

    report: Report
    manifest: Manifest | None
    learner: Learner

    @property
    def metrics(self) -> dict[str, float]:
        return self.report.metrics


class _PreflightLine(TrainerCallback):
    """Writes what a preflight found, when nothing can refuse the training any more."""

    def __init__(self, preflight: Mapping[str, Any]) -> None:
        self._line = describe(preflight)

    def on_train_begin(self, *args: Any, **kwargs: Any) -> None:
        tqdm.write(self._line, file=sys.stderr)


def train(run: Run) -> TrainingResult:
    """Train, keep the epoch with the best validation metric, and write the artifact to `run.output` with its report.

    A baseline writes only its report. Raises a `TrainingError` if training diverges.
    """
    return finish(learn(prepare(run)))


def learn(
    prepared: Prepared, callbacks: Sequence[TrainerCallback] = (), *, preflight: Mapping[str, Any] | None = None
) -> Learned:
    """Train and keep the best epoch; the Trainer calls `callbacks`. What the `preflight` found, which is
    made here if it is None, is written to stderr before the first step; its warnings will begin the report.

    Every process that torchrun started ends with the same model."""
    run, data = prepared.run, prepared.data
    if preflight is None and is_first():
        preflight = Preflight(prepared).report()
    use_threads(run.threads)
    take_device(run.device)
    meter = Meter()
    is_baseline = run.preset in BASELINES
    learner: Learner = BaselineLearner(run, data) if is_baseline else AdapterLearner(run, data)
    validation = data.validation.examples
    if preflight is not None:
        callbacks = (*callbacks, _PreflightLine(preflight))
    choose = subsample_queries if run.task_type == "ranking" else subsample
    history = learner.fit(data.train.examples, choose(validation, run.hyperparameters.eval_rows), callbacks)
    meter.mark_trained()
    leave_group()
    return Learned(run, learner, history, data.sizes, validation, meter, preflight["warnings"] if preflight else ())


def finish(learned: Learned) -> TrainingResult:
    """Measure the model on all validation examples, and write its artifact and report."""
    run, learner, validation = learned.run, learned.learner, learned.validation
    evaluation = learner.evaluate(validation, record_gates=True)
    record = create_record(run, learner.settings, learned.sizes, evaluation.metrics)
    subject, manifest = _export(run, learner, record, validation)  # before the report, whose failure must not lose it
    findings = Findings(
        metric=run.metric,
        warnings=learned.warnings,
        ending=learned.history.ending,
        has_converged=learned.history.has_converged,
        evaluation=evaluation,
        curves=Curves.create(learned.history),
        parameters=_count_parameters(learner),
        cost=learned.meter.read(learned.history, learner.device, run.dtype),
        pooling=learner.pooling,
        merging=_compare_routes(learner, validation, evaluation) if run.merge_report else None,
    )
    report = create_report(subject, findings)
    write_report(run.output, report)
    return TrainingResult(report, manifest, learner)


def _export(
    run: Run, learner: Learner, record: TrainingRecord, validation: Sequence[Example]
) -> tuple[Subject, Manifest | None]:
    if isinstance(learner, BaselineLearner):
        return learner.describe(record), None
    data = learner.export(record, validation)
    manifest = read_manifest(run.output)
    return Subject.of_artifact(run.output, data, manifest), manifest


def _count_parameters(learner: Learner) -> ParameterCounts:
    if isinstance(learner, BaselineLearner):
        return learner.parameters()
    return ParameterCounts.create(learner.model.parts, learner.backbone.config, learner.model)


def _compare_routes(learner: Learner, validation: Sequence[Example], merged: Evaluation) -> Merging | None:
    if isinstance(learner, BaselineLearner):
        return None
    return Merging.create(learner.served, learner.trained, learner.model, validation, merged)


def create_record(
    run: Run, settings: PresetSettings, sizes: Mapping[str, Any], found: Mapping[str, float]
) -> TrainingRecord:
    """The record of a resolved run, with the `sizes` of its data and the metrics that it `found`."""
    data = {
        "train": run.data.train.name,
        "validation": run.data.validation.name,
        **sizes,
        "text_columns": list(run.data.text_columns),
        "label_column": run.data.label_column,
    }
    if run.data.label_separator is not None:
        data["label_separator"] = run.data.label_separator
    numbers = asdict(run.hyperparameters) | {"metric": run.metric}
    if run.task_type in EMBEDDING_TYPES:
        numbers |= asdict(run.embedding)
    return TrainingRecord(
        data=data,
        hyperparameters=numbers | {"dtype": run.dtype, "settings": dict(settings)},
        metrics=dict(found),
        versions={name: version(name) for name in _VERSIONS},
    )
