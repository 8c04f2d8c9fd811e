"""The model of a training run: an adapter, or for comparison a baseline, full fine-tuning or intrinsic SAID."""

from collections.abc import Sequence
from functools import cached_property, partial
from typing import Protocol

import torch
from peltier_adapters.artifact.manifest import Manifest, TrainingRecord, read_manifest
from peltier_adapters.golden.proof import Candidate, create_reference
from peltier_adapters.presets.baselines import BASELINES
from peltier_adapters.presets.composition import PresetSettings
from peltier_adapters.presets.presets import find_preset
from peltier_adapters.spec.parts import HeadSpec
from peltier_adapters.spec.tasks import TaskSpec
from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_backbone.checkpoint.config import load_config
from peltier_backbone.load import load_backbone
from torch import nn
from transformers import TrainerCallback
from transformers.utils.logging import disable_progress_bar

from peltier_training.config.run import Run
from peltier_training.config.task import create_task
from peltier_training.data.data import LabelledData
from peltier_training.data.examples import Example, inputs_of
from peltier_training.data.labels import Labels
from peltier_training.data.rows import head_rows, text_rows
from peltier_training.delivery import export, rehearse
from peltier_training.errors import NotFiniteError, TrainingError
from peltier_training.evaluate.evaluation import Evaluation
from peltier_training.evaluate.examination import measure
from peltier_training.fit.method_check import check_baseline
from peltier_training.fit.trainer import BaselineTrainer, History, diverged, fit
from peltier_training.fit.tuning import HeadTuning, TextTuning, Tuning
from peltier_training.models.model import Dropout, HeadedAdapter, PairAdapter, TextAdapter, TokenPairAdapter
from peltier_training.report.cost import ParameterCounts
from peltier_training.report.merging import Merging
from peltier_training.report.page import write_file
from peltier_training.report.report import Subject


class Learner(Protocol):
    """The model of one resolved run. `pooling` is that of an encoder's head."""

    settings: PresetSettings
    device: torch.device
    pooling: str | None

    def fit(
        self, examples: Sequence[Example], validation: Sequence[Example], callbacks: Sequence[TrainerCallback] = ()
    ) -> History:
        """Train on `examples` and keep the best epoch on `validation`; the Trainer calls `callbacks`."""

    def evaluate(self, examples: Sequence[Example], *, record_gates: bool = False) -> Evaluation:
        """The evaluation of the trained model. Raises a `TrainingError` if its outputs are not finite."""

    def deliver(self, record: TrainingRecord, validation: Sequence[Example]) -> tuple[Subject, Manifest | None]:
        """Write the artifact, if the method has one. Returns the report's subject and the artifact's manifest."""

    def parameters(self) -> ParameterCounts:
        """What the method adds to its backbone."""

    def merging(self, validation: Sequence[Example], merged: Evaluation) -> Merging | None:
        """The comparison of routes through experts with the merged adapter, if the run asks for it."""


def start_at_mean(model: nn.Module, task: TaskSpec, examples: Sequence[Example]) -> None:
    """Set the bias of the output layer to the mean target of a regression; other tasks and T5s stay as they are."""
    biases = [bias for name, bias in model.named_parameters() if name.endswith("head/bias") or name == "head.bias"]
    if biases and task.type == "regression":
        mean = Labels(task.type, task.labels).targets(examples).mean()
        nn.init.constant_(biases[0], float(mean))


class AdapterLearner:
    """A trainable adapter on a frozen backbone of the run's dtype.

    Golden examples use its served form on a float32 backbone, and so does the evaluation. An adapter that is trained in
    int8 is evaluated in int8, where it is meant to be served, and its golden examples are checked there too.
    """

    def __init__(self, run: Run, data: LabelledData) -> None:
        self._run = run
        self.backbone: Backbone = load_backbone(run.backbone, device=run.device, dtype=run.dtype)
        self.device = self.backbone.device
        self.task = create_task(run, self.backbone, data.labels, data.train.examples)
        self.model = _create_model(run, self.backbone, self.task)
        self.settings: PresetSettings = self.model.settings
        start_at_mean(self.model, self.task, data.train.examples)
        self.pooling: str | None = next((part.pooling for part in self.model.parts if isinstance(part, HeadSpec)), None)
        rehearse(self.backbone, self.candidate(), data.validation.examples)

    def fit(
        self, examples: Sequence[Example], validation: Sequence[Example], callbacks: Sequence[TrainerCallback] = ()
    ) -> History:
        backbone, task, model = self.backbone, self.task, self.model
        judge = partial(self._judge, validation)
        if isinstance(model, TextAdapter):
            texts = text_rows(backbone, task, model.parts, examples)
            return fit(self._run, model, texts, None, judge, callbacks)
        rows, measured = head_rows(backbone, task, examples), head_rows(backbone, task, validation)
        model.start(rows.encoded)
        return fit(self._run, model, rows, measured, judge if task.has_token_head else None, callbacks)

    def evaluate(self, examples: Sequence[Example], *, record_gates: bool = False) -> Evaluation:
        return measure(self._served, self._trained, examples, record_gates=record_gates)

    def deliver(self, record: TrainingRecord, validation: Sequence[Example]) -> tuple[Subject, Manifest]:
        inputs = inputs_of(self.task, validation)
        other = None if self._served is self._exact else self._served
        data = export(self._exact, self._trained, inputs, record, other)
        write_file(self._run.output, data)
        manifest = read_manifest(self._run.output)
        return Subject.of_artifact(self._run.output, data, manifest), manifest

    def parameters(self) -> ParameterCounts:
        return ParameterCounts.create(self.model.parts, self.backbone.config, self.model)

    def merging(self, validation: Sequence[Example], merged: Evaluation) -> Merging | None:
        if not self._run.merge_report:
            return None
        return Merging.create(self._served, self._trained, self.model, validation, merged)

    def candidate(self) -> Candidate:
        """The current adapter in its served form."""
        return Candidate(self._run.task, self._run.preset, self.model.parts, self.model.merged(), self.task)

    @cached_property
    def _trained(self) -> Candidate:
        """The adapter after training; first used then."""
        return self.candidate()

    @cached_property
    def _exact(self) -> Backbone:
        run = self._run
        return self.backbone if run.dtype == "float32" else load_backbone(run.backbone, device=run.device)

    @property
    def _served(self) -> Backbone:
        return self.backbone if self._run.dtype == "int8" else self._exact

    def _judge(self, validation: Sequence[Example]) -> dict[str, float]:
        try:
            return dict(measure(self.backbone, self.candidate(), validation).metrics)
        except NotFiniteError:
            raise diverged(self._run) from None


def _create_model(run: Run, backbone: Backbone, task: TaskSpec) -> HeadedAdapter | TextAdapter:
    preset, numbers = find_preset(run.preset), run.hyperparameters
    settings = preset.settings(run.overrides, backbone.config)
    parts = preset.compose(settings, backbone.config, outputs=run.num_outputs(task.labels, backbone.config))
    kind: type[HeadedAdapter] | type[TextAdapter] = TextAdapter if backbone.config.generates else HeadedAdapter
    if task.embeds:
        kind = TokenPairAdapter if task.type == "multi-vector-embedding" else PairAdapter
    torch.manual_seed(numbers.seed)
    dropout = Dropout(run.head_dropout, run.backbone_dropout)
    model = kind(backbone, parts, settings, seed=numbers.seed, dropout=dropout)
    return model.to(backbone.device)


class BaselineLearner:
    """A tuned backbone. It writes no weights, so a run cannot be resumed."""

    def __init__(self, run: Run, data: LabelledData) -> None:
        if run.resume:
            raise TrainingError(f"preset {run.preset!r} leaves no checkpoints to resume from")
        disable_progress_bar()  # type: ignore[no-untyped-call]  # of files; `TrainingProgress` shows the run's own
        checkpoint = find_checkpoint(run.backbone)
        config = load_config(checkpoint)
        check_baseline(BASELINES[run.preset], run, config, checkpoint)
        self._run, self._method, self._config = run, BASELINES[run.preset], config
        self.settings: PresetSettings = self._method.settings(run.overrides, config)
        # The frozen backbone is only needed to create the task. Its memory is freed when this returns.
        backbone = load_backbone(run.backbone, device=run.device)
        self.task = create_task(run, backbone, data.labels, data.train.examples)
        self._reference = create_reference(backbone)
        torch.manual_seed(run.hyperparameters.seed)
        tuning = TextTuning if config.generates else HeadTuning
        self.tuning: Tuning = tuning(run, backbone, self.task)
        start_at_mean(self.tuning.model, self.task, data.train.examples)
        self.device = self.tuning.device
        self.pooling: str | None = None
        if not config.generates:
            outputs = run.num_outputs(self.task.labels, config)
            self.pooling = self._method.head(self.settings, config, outputs=outputs).pooling

    def fit(
        self, examples: Sequence[Example], validation: Sequence[Example], callbacks: Sequence[TrainerCallback] = ()
    ) -> History:
        trainer = BaselineTrainer(
            run=self._run,
            objective=self.tuning.objective,
            judge=lambda: dict(self.evaluate(validation).metrics),
            model=self.tuning.model,
            data_collator=self.tuning.collate,
            train_dataset=self.tuning.rows(examples),
            eval_dataset=[] if self._config.generates else self.tuning.rows(validation),
        )
        return trainer.fit(callbacks)

    def evaluate(self, examples: Sequence[Example], *, record_gates: bool = False) -> Evaluation:
        return self.tuning.examine(examples)

    def deliver(self, record: TrainingRecord, validation: Sequence[Example]) -> tuple[Subject, None]:
        reason = self._method.reason(self._config)
        return Subject(self._run.task, self._run.preset, self._reference, self.task, record, reason=reason), None

    def parameters(self) -> ParameterCounts:
        num = self._method.count_parameters(self.settings, self._config)
        return ParameterCounts.create_tuned(num, self._config, self.tuning.model)

    def merging(self, validation: Sequence[Example], merged: Evaluation) -> None:
        return None
