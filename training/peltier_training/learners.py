"""The adapter of a training run."""

from collections.abc import Sequence
from functools import cached_property, partial

import torch
from peltier_adapters.artifact.manifest import TrainingRecord
from peltier_adapters.golden.proof import Candidate
from peltier_adapters.presets.composition import PresetSettings
from peltier_adapters.presets.presets import find_preset
from peltier_adapters.spec.parts import HeadSpec
from peltier_adapters.spec.tasks import TaskSpec
from peltier_backbone.backbone import Backbone
from peltier_backbone.load import load_backbone
from torch import nn
from transformers import TrainerCallback

from peltier_training.config.run import Run
from peltier_training.config.task import create_task
from peltier_training.data.data import LabelledData
from peltier_training.data.examples import Example, inputs_of
from peltier_training.data.labels import Labels
from peltier_training.data.rows import head_rows, text_rows
from peltier_training.delivery import export, rehearse, write_file
from peltier_training.errors import NotFiniteError
from peltier_training.evaluate.adapters import evaluate_candidate
from peltier_training.evaluate.evaluation import Evaluation
from peltier_training.fit.trainer import History, diverged, fit
from peltier_training.models.model import Dropout, HeadedAdapter, PairAdapter, TextAdapter, TokenPairAdapter


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
        return evaluate_candidate(self.served, self.trained, examples, record_gates=record_gates)

    def export(self, record: TrainingRecord, validation: Sequence[Example]) -> bytes:
        """The artifact, as it is written to the run's output."""
        inputs = inputs_of(self.task, validation)
        other = None if self.served is self._exact else self.served
        data = export(self._exact, self.trained, inputs, record, other)
        write_file(self._run.output, data)
        return data

    def candidate(self) -> Candidate:
        """The current adapter in its served form."""
        return Candidate(self._run.task, self._run.preset, self.model.parts, self.model.merged(), self.task)

    @cached_property
    def trained(self) -> Candidate:
        """The adapter after training; first used then."""
        return self.candidate()

    @cached_property
    def _exact(self) -> Backbone:
        run = self._run
        return self.backbone if run.dtype == "float32" else load_backbone(run.backbone, device=run.device)

    @property
    def served(self) -> Backbone:
        """The backbone on which the adapter is evaluated."""
        return self.backbone if self._run.dtype == "int8" else self._exact

    def _judge(self, validation: Sequence[Example]) -> dict[str, float]:
        try:
            return dict(evaluate_candidate(self.backbone, self.candidate(), validation).metrics)
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
