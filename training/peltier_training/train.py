"""One training run: data, trainable adapter, Trainer, best epoch, artifact."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from peltier_adapters.manifest import Manifest, read_manifest
from peltier_adapters.presets import find_preset
from peltier_adapters.proof import Candidate
from peltier_adapters.task_spec import TaskSpec
from peltier_backbone.load import Backbone, load_backbone

from peltier_training.config.preparation import Prepared, prepare
from peltier_training.config.record import create_record
from peltier_training.config.run import Run
from peltier_training.config.task import create_task
from peltier_training.data.examples import Example, subsample
from peltier_training.data.labels import Labels
from peltier_training.data.rows import head_rows, text_rows
from peltier_training.errors import NotFiniteError
from peltier_training.evaluate.export import export, measure
from peltier_training.fit.history import History
from peltier_training.fit.trainer import diverged, fit, fit_text
from peltier_training.models.model import HeadedAdapter, TrainableAdapter
from peltier_training.models.text_model import TextAdapter
from peltier_training.ranks import part, take_device
from peltier_training.report.cost import Meter
from peltier_training.report.curves import Curves
from peltier_training.report.files import write_file, write_report
from peltier_training.report.merging import Merging
from peltier_training.report.parameters import Parameters
from peltier_training.report.report import Findings, Subject, create_report
from peltier_training.threads import use_threads

Adapter = TypeVar("Adapter", bound=TrainableAdapter)


@dataclass(frozen=True)
class Learned:
    """A trained adapter that is neither measured nor written yet; `run` is resolved."""

    run: Run
    backbone: Backbone
    task: TaskSpec
    model: TrainableAdapter
    history: History
    sizes: Mapping[str, Any]
    validation: Sequence[Example]
    meter: Meter


def train(run: Run) -> Manifest:
    """Train, keep the best epoch by the validation metric, and write the artifact to `run.output` with its report."""
    return finish(learn(prepare(run)))


def learn(prepared: Prepared) -> Learned:
    """Train and keep the best epoch; of processes that torchrun started each has the same."""
    run, data = prepared.run, prepared.data
    labels, examples, validation = data.labels, data.train.examples, data.validation.examples
    use_threads(run.threads)
    take_device(run.device)
    meter = Meter()
    backbone = load_backbone(run.backbone, device=run.device, dtype=run.dtype)
    task = create_task(run, backbone, labels, examples)
    teach = _teach_text if backbone.config.generates else _teach_head
    model, history = teach(run, backbone, task, examples, subsample(validation, run.hyperparameters.eval_rows))
    meter.mark_trained()
    part()
    return Learned(run, backbone, task, model, history, data.sizes, validation, meter)


def finish(learned: Learned) -> Manifest:
    """Measure the adapter, and write its artifact and report.

    The recorded metrics and golden examples come from the artifact itself on a float32 backbone, as it will be served.
    """
    run, model, backbone, validation = learned.run, learned.model, learned.backbone, learned.validation
    exact = backbone if run.dtype == "float32" else load_backbone(run.backbone, device=run.device)
    adapter = Candidate(run.task, run.preset, model.parts, model.merged(), learned.task)
    evaluation = measure(exact, adapter, validation, record_gates=True)
    record = create_record(run, model.settings, learned.sizes, evaluation.metrics)
    data = export(exact, adapter, [example.input for example in validation], record)
    write_file(run.output, data)  # first of all: no report is worth the loss of it
    manifest = read_manifest(run.output)
    findings = Findings(
        metric=run.metric,
        evaluation=evaluation,
        curves=Curves.create(learned.history),
        parameters=Parameters.create(model.parts, backbone.config, model),
        cost=learned.meter.read(learned.history, backbone.device, run.dtype),
        pooling=None if backbone.config.generates else manifest.head.pooling,
        merging=Merging.create(exact, adapter, model, validation, evaluation) if run.merge_report else None,
    )
    write_report(run.output, create_report(Subject.of_artifact(run.output, data, manifest), findings))
    return manifest


def _teach_head(
    run: Run, backbone: Backbone, task: TaskSpec, examples: Sequence[Example], validation: Sequence[Example]
) -> tuple[TrainableAdapter, History]:
    model = _create(HeadedAdapter, run, backbone, task)
    if task.type == "regression":
        model.center(float(Labels(task.type, task.labels).targets(examples).mean()))
    return model, fit(run, model, head_rows(backbone, task, examples), head_rows(backbone, task, validation))


def _teach_text(
    run: Run, backbone: Backbone, task: TaskSpec, examples: Sequence[Example], validation: Sequence[Example]
) -> tuple[TrainableAdapter, History]:
    model = _create(TextAdapter, run, backbone, task)

    def judge() -> dict[str, float]:
        try:
            adapter = Candidate(run.task, run.preset, model.parts, model.merged(), task)
            return dict(measure(backbone, adapter, validation).metrics)
        except NotFiniteError:
            raise diverged(run) from None

    return model, fit_text(run, model, text_rows(backbone, task, model.parts, examples), judge)


def _create(kind: type[Adapter], run: Run, backbone: Backbone, task: TaskSpec) -> Adapter:
    preset, numbers = find_preset(run.preset), run.hyperparameters
    settings = preset.settings(run.overrides, backbone.config)
    parts = preset.compose(settings, backbone.config, outputs=len(task.labels))
    torch.manual_seed(numbers.seed)
    model = kind(backbone, parts, settings, dropout=numbers.dropout, seed=numbers.seed)
    return model.to(backbone.device)
