"""The common interface of adapters and baselines in a training run."""

from collections.abc import Sequence
from typing import Protocol

import torch
from peltier_adapters.artifact.manifest import Manifest, TrainingRecord
from peltier_adapters.presets.composition import PresetSettings
from peltier_adapters.spec.tasks import TaskSpec
from torch import nn

from peltier_training.data.examples import Example
from peltier_training.data.labels import Labels
from peltier_training.evaluate.evaluation import Evaluation
from peltier_training.fit.trainer import History
from peltier_training.report.merging import Merging
from peltier_training.report.parameters import ParameterCounts
from peltier_training.report.report import Subject


class Learner(Protocol):
    """The model of one resolved run. `pooling` is that of an encoder's head."""

    settings: PresetSettings
    device: torch.device
    pooling: str | None

    def fit(self, examples: Sequence[Example], validation: Sequence[Example]) -> History:
        """Train on `examples` and keep the best epoch on `validation`."""

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
