"""The learning rate over a budget of steps or of time."""

import math
import time
from typing import Any

from torch.optim import Optimizer
from torch.optim.lr_scheduler import LRScheduler

from peltier_training.pretraining.run import PretrainingBudget


class BudgetSchedule(LRScheduler):
    """A linear rise over the fraction `warmup` of the budget, then a cosine decay to zero at its end.

    For a budget in minutes it counts the time since its creation and that of earlier calls, which is part of its state,
    so that the rate reaches zero in time whatever the machine's speed."""

    def __init__(self, optimizer: Optimizer, budget: PretrainingBudget, warmup: float) -> None:
        self._budget, self._warmup = budget, warmup
        self._earlier_seconds, self._began = 0.0, time.monotonic()
        super().__init__(optimizer)

    @property
    def seconds(self) -> float:
        """Time spent on training, over all calls."""
        return self._earlier_seconds + time.monotonic() - self._began

    @property
    def fraction(self) -> float:
        """The spent part of the budget, from 0 to 1."""
        if self._budget.steps is not None:
            return min(self.last_epoch / self._budget.steps, 1.0)
        assert self._budget.minutes is not None
        return min(self.seconds / (60 * self._budget.minutes), 1.0)

    def get_lr(self) -> list[float | Any]:
        """The current rate of each group."""
        factor = rate_at(self.fraction, self._warmup)
        return [base * factor for base in self.base_lrs]

    def state_dict(self) -> dict[str, Any]:
        """The step and the time spent, independent of the machine's clock."""
        return {"last_epoch": self.last_epoch, "seconds": self.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Continue from `state_dict`."""
        self.last_epoch = state_dict["last_epoch"]
        self._earlier_seconds, self._began = state_dict["seconds"], time.monotonic()


def rate_at(fraction: float, warmup: float) -> float:
    """The rate after `fraction` of the budget, relative to the highest."""
    if fraction < warmup:
        return fraction / warmup
    return 0.5 * (1 + math.cos(math.pi * (fraction - warmup) / (1 - warmup)))
