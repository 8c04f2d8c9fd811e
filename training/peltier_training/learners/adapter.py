"""Training of an adapter."""

from collections.abc import Sequence
from functools import cached_property, partial

import torch
from peltier_adapters.artifact.manifest import Manifest, TrainingRecord, read_manifest
from peltier_adapters.golden.proof import Candidate
from peltier_adapters.presets.composition import PresetSettings
from peltier_adapters.presets.presets import find_preset
from peltier_adapters.spec.parts import HeadSpec
from peltier_adapters.spec.tasks import TaskSpec
from peltier_backbone.backbone import Backbone
from peltier_backbone.load import load_backbone

from peltier_training.config.run import Run
from peltier_training.config.task import create_task
from peltier_training.data.examples import Example
from peltier_training.data.labelled_data import LabelledData
from peltier_training.data.pairs import inputs_of
from peltier_training.data.rows import head_rows, text_rows
from peltier_training.errors import NotFiniteError
from peltier_training.evaluate.evaluation import Evaluation
from peltier_training.evaluate.export import export, measure
from peltier_training.fit.trainer import History, diverged, fit, fit_text, fit_tokens
from peltier_training.learners.learner import start_at_mean
from peltier_training.models.dropout import Dropout
from peltier_training.models.model import HeadedAdapter, PairAdapter, TextAdapter
from peltier_training.report.merging import Merging
from peltier_training.report.page import write_file
from peltier_training.report.parameters import ParameterCounts
from peltier_training.report.report import Subject


class AdapterLearner:
    """A trainable adapter on a frozen backbone of the run's dtype.

    Golden examples use its served form on a float32 backbone, and so does the evaluation. An adapter that is trained in
    int8 is evaluated in int8, where it is meant to be served, and its golden examples are checked there too.
    """

    def __init__(self, run: Run, data: LabelledData) -> None:
        self._run = run
        self.backbone = load_backbone(run.backbone, device=run.device, dtype=run.dtype)
        self.device = self.backbone.device
        self.task = create_task(run, self.backbone, data.labels, data.train.examples)
        self.model = _create_model(run, self.backbone, self.task)
        self.settings: PresetSettings = self.model.settings
        start_at_mean(self.model, self.task, data.train.examples)
        self.pooling: str | None = next((part.pooling for part in self.model.parts if isinstance(part, HeadSpec)), None)

    def fit(self, examples: Sequence[Example], validation: Sequence[Example]) -> History:
        backbone, task, model = self.backbone, self.task, self.model
        if isinstance(model, TextAdapter):
            judge = partial(self._judge, validation)
            return fit_text(self._run, model, text_rows(backbone, task, model.parts, examples), judge)
        rows = head_rows(backbone, task, examples)
        if task.reads_tokens:
            return fit_tokens(self._run, model, rows, partial(self._judge, validation))
        return fit(self._run, model, rows, head_rows(backbone, task, validation))

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
    if task.type == "embedding":
        kind = PairAdapter
    torch.manual_seed(numbers.seed)
    dropout = Dropout(run.head_dropout, run.backbone_dropout)
    model = kind(backbone, parts, settings, seed=numbers.seed, dropout=dropout)
    return model.to(backbone.device)
