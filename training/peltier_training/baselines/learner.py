"""Full fine-tuning and intrinsic SAID, for comparison with adapters. The best epoch stays in memory."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from peltier_adapters.artifact.manifest import TrainingRecord
from peltier_adapters.golden.proof import create_reference
from peltier_adapters.presets.baselines import BASELINES
from peltier_adapters.presets.composition import PresetSettings
from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_backbone.checkpoint.config import load_config
from peltier_backbone.load import load_backbone
from torch import Tensor, nn
from transformers import TrainerCallback
from transformers.utils.logging import disable_progress_bar

from peltier_training.baselines.method_check import check_baseline
from peltier_training.baselines.tuning import HeadTuning, TextTuning
from peltier_training.config.run import Run
from peltier_training.config.task import create_task
from peltier_training.data.data import LabelledData
from peltier_training.data.examples import Example
from peltier_training.errors import TrainingError
from peltier_training.evaluate.evaluation import Evaluation
from peltier_training.fit.objective import Objective
from peltier_training.fit.trainer import History, JudgedTrainer, create_arguments, run_trainer
from peltier_training.learners import start_at_mean
from peltier_training.report.cost import ParameterCounts
from peltier_training.report.report import Subject


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
        tuning: type[HeadTuning | TextTuning] = TextTuning if config.generates else HeadTuning
        self.tuning = tuning(run, backbone, self.task)
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
        return self.tuning.evaluate(examples)

    def describe(self, record: TrainingRecord) -> Subject:
        """The subject of its report."""
        return Subject(
            name=self._run.task,
            preset=self._run.preset,
            reason=self._method.reason(self._config),
            backbone=self._reference,
            task=self.task,
            training=record,
        )

    def parameters(self) -> ParameterCounts:
        """What the method trains."""
        num = self._method.count_parameters(self.settings, self._config)
        return ParameterCounts.create((), self._config, self.tuning.model, num)


class BaselineTrainer(JudgedTrainer):
    """Minimises the task's loss and keeps the parameters of the best epoch, as measured by `judge`."""

    def __init__(self, *, run: Run, objective: Objective, **options: Any) -> None:
        self._objective = objective
        self._best: Mapping[str, Tensor] | None = None
        arguments = create_arguments(run, num_train_epochs=run.epochs, save_strategy="no", bf16=run.dtype == "bfloat16")
        super().__init__(run=run, args=arguments, **options)

    @property
    def _tuned(self) -> nn.Module:
        assert self.model is not None, "a Trainer has a model"
        return self.model

    def compute_loss(  # type: ignore[override]
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, **_: Any
    ) -> Any:
        logits = model(**{name: tensor for name, tensor in inputs.items() if name != "labels"})
        loss = self._objective.task_loss(logits, inputs["labels"])
        return (loss, {"logits": logits}) if return_outputs else loss

    def evaluate(self, *_: Any, **__: Any) -> dict[str, float]:
        self._tuned.eval()
        return super().evaluate()

    def _determine_best_metric(self, metrics: dict[str, float], trial: Any) -> bool:
        """Keeps the parameters of the best validation until now."""
        if found := super()._determine_best_metric(metrics, trial):
            trained = {name: p for name, p in self._tuned.named_parameters() if p.requires_grad}
            self._best = {name: p.detach().to("cpu", copy=True) for name, p in trained.items()}
        return found

    def fit(self, callbacks: Sequence[TrainerCallback] = ()) -> History:
        """Train, and leave the best epoch in the model."""
        history = run_trainer(self._run, self, callbacks=callbacks)
        assert self._best is not None, "every epoch is measured"
        with torch.no_grad():
            for name, parameter in self._tuned.named_parameters():
                if name in self._best:
                    parameter.copy_(self._best[name])
        self._tuned.eval()
        return history
