"""Training without an adapter, to compare adapters with: full fine-tuning and intrinsic SAID."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from peltier_adapters.baselines import BASELINES
from peltier_adapters.task_spec import TaskSpec
from peltier_backbone.checkpoint import find_checkpoint
from peltier_backbone.config import load_config
from peltier_backbone.load import Backbone, load_backbone

from peltier_training.baseline_trainer import BaselineTrainer
from peltier_training.data import Example, read_examples, thin_out
from peltier_training.errors import TrainingError
from peltier_training.labels import Labels, find_labels
from peltier_training.report.cost import Cost, Meter
from peltier_training.run import Run
from peltier_training.task import create_task
from peltier_training.tuning import HeadTuning, TextTuning, Tuning


@dataclass(frozen=True)
class Tuned:
    """What a baseline leaves: its metrics on all validation examples, why there is no artifact, what it took, and a way
    to measure it on other examples while it is in memory."""

    metrics: dict[str, float]
    reason: str
    cost: Cost
    measure: Callable[[Sequence[Example]], dict[str, float]]


def train_baseline(run: Run) -> Tuned:
    """Train, keep the best epoch by the validation metric, and measure it. Writes no weights."""
    run.check()
    meter = Meter()
    if run.resume:
        raise TrainingError(f"preset {run.preset!r} leaves no checkpoints to resume from")
    config = load_config(find_checkpoint(run.backbone))
    run = run.resolved(config)
    columns = run.data.text_columns, run.data.label_column
    examples, validation = (read_examples(path, *columns) for path in (run.data.train, run.data.validation))
    labels = find_labels(run.task_type, examples, run.data.labels)
    run.check_metric(labels.names)
    BASELINES[run.preset].check(run.overrides, config)
    backbone = load_backbone(run.backbone, device=run.device)
    task = create_task(run, backbone, labels, examples)
    torch.manual_seed(run.hyperparameters.seed)
    tuning = _create(run, backbone, task, examples)
    trainer = BaselineTrainer(
        run=run,
        objective=tuning.objective,
        judge=partial(tuning.measure, thin_out(validation, run.hyperparameters.eval_rows)),
        model=tuning.model,
        data_collator=tuning.collate,
        train_dataset=tuning.rows(examples),
    )
    course = trainer.fit()
    meter.mark_trained()
    metrics = tuning.measure(validation)
    cost = meter.read(course, backbone.device, run.dtype)
    return Tuned(metrics, BASELINES[run.preset].reason(config), cost, tuning.measure)


def _create(run: Run, backbone: Backbone, task: TaskSpec, examples: Sequence[Example]) -> Tuning:
    if backbone.config.generates:
        return TextTuning(run, backbone, task)
    tuning = HeadTuning(run, backbone, task)
    if task.type == "regression":
        tuning.center(float(Labels(task.type, task.labels).targets(examples).mean()))
    return tuning
