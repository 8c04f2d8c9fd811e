"""What a training run is made of, whether it trains an adapter or a baseline."""

from collections.abc import Sequence
from typing import Protocol

import torch
from peltier_adapters.artifact.manifest import Manifest, TrainingRecord
from peltier_adapters.presets.composition import Settings

from peltier_training.data.examples import Example
from peltier_training.evaluate.evaluation import Evaluation
from peltier_training.fit.history import History
from peltier_training.report.merging import Merging
from peltier_training.report.parameters import Parameters
from peltier_training.report.report import Subject


class Learner(Protocol):
    """A model of one resolved run on its task. `pooling` is that of an encoder's head."""

    settings: Settings
    device: torch.device
    pooling: str | None

    def fit(self, examples: Sequence[Example], validation: Sequence[Example]) -> History:
        """Train on `examples` and keep the epoch that was best on `validation`."""

    def evaluate(self, examples: Sequence[Example], *, record_gates: bool = False) -> Evaluation:
        """What the trained model answers; a `TrainingError` where its outputs are not finite."""

    def deliver(self, record: TrainingRecord, validation: Sequence[Example]) -> tuple[Subject, Manifest | None]:
        """Write the artifact, if the method has one. What the report is about, and the artifact's manifest."""

    def parameters(self) -> Parameters:
        """What the method adds to its backbone."""

    def merging(self, validation: Sequence[Example], merged: Evaluation) -> Merging | None:
        """The routes through experts beside what the merged adapter answers, where the run asks for that."""
