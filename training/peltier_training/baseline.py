"""Training without an adapter, to compare adapters with: full fine-tuning and intrinsic SAID."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from peltier_adapters.baselines import BASELINES
from peltier_adapters.manifest import BackboneRef
from peltier_adapters.proof import create_reference
from peltier_adapters.task_spec import TaskSpec
from peltier_backbone.checkpoint import find_checkpoint
from peltier_backbone.config import load_config
from peltier_backbone.load import Backbone, load_backbone
from transformers.utils.logging import disable_progress_bar

from peltier_training.config.preparation import Prepared, prepare
from peltier_training.config.record import create_record
from peltier_training.config.run import Run
from peltier_training.config.task import create_task
from peltier_training.data.examples import Example, subsample
from peltier_training.data.labels import Labels
from peltier_training.errors import TrainingError
from peltier_training.fit.baseline_trainer import BaselineTrainer
from peltier_training.fit.history import History
from peltier_training.fit.preflight import check_baseline
from peltier_training.fit.tuning import HeadTuning, TextTuning, Tuning
from peltier_training.ranks import part, take_device
from peltier_training.report.cost import Cost, Meter
from peltier_training.report.curves import Curves
from peltier_training.report.files import write_report
from peltier_training.report.parameters import Parameters
from peltier_training.report.report import Findings, Subject, create_report
from peltier_training.threads import use_threads


@dataclass(frozen=True)
class Tuned:
    """What a baseline leaves: its metrics on all validation examples, why there is no artifact, what it took, and a way
    to measure it on other examples while it is in memory."""

    metrics: dict[str, float]
    reason: str
    cost: Cost
    measure: Callable[[Sequence[Example]], dict[str, float]]


@dataclass(frozen=True)
class Learned:
    """A tuned backbone that is not measured yet; `run` is resolved."""

    run: Run
    tuning: Tuning
    task: TaskSpec
    reference: BackboneRef
    history: History
    sizes: Mapping[str, Any]
    validation: Sequence[Example]
    meter: Meter


def train_baseline(run: Run) -> Tuned:
    """Train, keep the best epoch by the validation metric, measure it, and write its report where an artifact's would
    be. No weights are written. A `TrainingError` where training diverged."""
    return finish(learn(prepare(run)))


def learn(prepared: Prepared) -> Learned:
    """Train and keep the best epoch; of processes that torchrun started each has the same."""
    run, data = prepared.run, prepared.data
    labels, examples, validation = data.labels, data.train.examples, data.validation.examples
    use_threads(run.threads)
    disable_progress_bar()  # type: ignore[no-untyped-call]  # of each checkpoint's files; `Progress` has the run's own
    take_device(run.device)
    meter = Meter()
    if run.resume:
        raise TrainingError(f"preset {run.preset!r} leaves no checkpoints to resume from")
    checkpoint = find_checkpoint(run.backbone)
    check_baseline(BASELINES[run.preset], run, load_config(checkpoint), checkpoint)
    tuning, task, reference = _prepare(run, labels, examples)
    history = _teach(run, tuning, examples, subsample(validation, run.hyperparameters.eval_rows))
    meter.mark_trained()
    part()
    return Learned(run, tuning, task, reference, history, data.sizes, validation, meter)


def finish(learned: Learned) -> Tuned:
    """Measure on all validation examples, and write the report."""
    run, tuning, validation = learned.run, learned.tuning, learned.validation
    config = load_config(find_checkpoint(run.backbone))
    evaluation = tuning.examine(validation)
    cost = learned.meter.read(learned.history, tuning.device, run.dtype)
    method, reason = BASELINES[run.preset], BASELINES[run.preset].reason(config)
    settings = method.settings(run.overrides, config)
    record = create_record(run, settings, learned.sizes, evaluation.metrics)
    findings = Findings(
        metric=run.metric,
        evaluation=evaluation,
        curves=Curves.create(learned.history),
        parameters=Parameters.create_tuned(method.count_parameters(settings, config), config, tuning.model),
        cost=cost,
        pooling=None if config.generates else method.head(settings, config, outputs=learned.task.num_outputs).pooling,
    )
    subject = Subject(run.task, run.preset, learned.reference, learned.task, record, reason=reason)
    write_report(run.output, create_report(subject, findings))
    return Tuned(dict(evaluation.metrics), reason, cost, partial(_measure, tuning))


def _prepare(run: Run, labels: Labels, examples: Sequence[Example]) -> tuple[Tuning, TaskSpec, BackboneRef]:
    """The frozen backbone that tells the task is gone when this returns: its memory is not the baseline's."""
    backbone = load_backbone(run.backbone, device=run.device)
    task = create_task(run, backbone, labels, examples)
    torch.manual_seed(run.hyperparameters.seed)
    return _create(run, backbone, task, examples), task, create_reference(backbone)


def _teach(run: Run, tuning: Tuning, examples: Sequence[Example], validation: Sequence[Example]) -> History:
    trainer = BaselineTrainer(
        run=run,
        objective=tuning.objective,
        judge=partial(_measure, tuning, validation),
        model=tuning.model,
        data_collator=tuning.collate,
        train_dataset=tuning.rows(examples),
    )
    return trainer.fit()


def _measure(tuning: Tuning, examples: Sequence[Example]) -> dict[str, float]:
    return dict(tuning.examine(examples).metrics)


def _create(run: Run, backbone: Backbone, task: TaskSpec, examples: Sequence[Example]) -> Tuning:
    if backbone.config.generates:
        return TextTuning(run, backbone, task)
    tuning = HeadTuning(run, backbone, task)
    if task.type == "regression":
        tuning.center(float(Labels(task.type, task.labels).targets(examples).mean()))
    return tuning
