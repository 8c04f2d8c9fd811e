"""The Hugging Face Trainer for a tuned backbone. It keeps the best epoch in memory and writes no checkpoints."""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from peltier_training.config.run import Run
from peltier_training.evaluate import metrics
from peltier_training.fit.arguments import create_arguments
from peltier_training.fit.objective import Objective
from peltier_training.fit.trainer import History, JudgedTrainer, conduct


class BaselineTrainer(JudgedTrainer):
    """Minimises the task's loss and keeps the parameters of the best epoch, as measured by `judge`."""

    def __init__(self, *, run: Run, objective: Objective, **options: Any) -> None:
        self._run, self._objective = run, objective
        self._best: tuple[float, Mapping[str, Tensor]] | None = None
        arguments = create_arguments(run, num_train_epochs=run.epochs, save_strategy="no", bf16=run.dtype == "bfloat16")
        super().__init__(args=arguments, **options)

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
        found = super().evaluate()
        sign = -1.0 if self._run.metric in metrics.LOWER_IS_BETTER else 1.0
        score = sign * found[f"eval_{self._run.metric}"]
        if self._best is None or score > self._best[0]:
            self.state.best_global_step = self.state.global_step
            trained = {name: p for name, p in self._tuned.named_parameters() if p.requires_grad}
            self._best = score, {name: p.detach().to("cpu", copy=True) for name, p in trained.items()}
        return found

    def fit(self) -> History:
        """Train, and leave the best epoch in the model."""
        history = conduct(self._run, self)
        assert self._best is not None, "every epoch is measured"
        with torch.no_grad():
            for name, parameter in self._tuned.named_parameters():
                if name in self._best[1]:
                    parameter.copy_(self._best[1][name])
        self._tuned.eval()
        return history
