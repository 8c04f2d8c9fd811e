"""Training without an adapter, for comparison: full fine-tuning and intrinsic SAID."""

from collections.abc import Sequence

import torch
from peltier_adapters.artifact.manifest import TrainingRecord
from peltier_adapters.golden.proof import create_reference
from peltier_adapters.presets.baselines import BASELINES
from peltier_adapters.presets.composition import PresetSettings
from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_backbone.checkpoint.config import load_config
from peltier_backbone.load import load_backbone
from transformers.utils.logging import disable_progress_bar

from peltier_training.config.run import Run
from peltier_training.config.task import create_task
from peltier_training.data.examples import Example
from peltier_training.data.labelled_data import LabelledData
from peltier_training.errors import TrainingError
from peltier_training.evaluate.evaluation import Evaluation
from peltier_training.fit.baseline_trainer import BaselineTrainer
from peltier_training.fit.preflight import check_baseline
from peltier_training.fit.trainer import History
from peltier_training.fit.tuning import HeadTuning, TextTuning, Tuning
from peltier_training.learners.learner import start_at_mean
from peltier_training.report.parameters import ParameterCounts
from peltier_training.report.report import Subject


class BaselineLearner:
    """A tuned backbone. It writes no weights, so a run cannot be resumed."""

    def __init__(self, run: Run, data: LabelledData) -> None:
        if run.resume:
            raise TrainingError(f"preset {run.preset!r} leaves no checkpoints to resume from")
        disable_progress_bar()  # type: ignore[no-untyped-call]  # of files; `Progress` shows the run's own
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

    def fit(self, examples: Sequence[Example], validation: Sequence[Example]) -> History:
        trainer = BaselineTrainer(
            run=self._run,
            objective=self.tuning.objective,
            judge=lambda: dict(self.evaluate(validation).metrics),
            model=self.tuning.model,
            data_collator=self.tuning.collate,
            train_dataset=self.tuning.rows(examples),
        )
        return trainer.fit()

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
