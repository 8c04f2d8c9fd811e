"""How a T5 is asked and how it answers; other backbones have none of these options."""

import math
from dataclasses import dataclass, fields, replace
from typing import Literal

from peltier_adapters.task_spec import MAX_BEAMS, MAX_NEW_TOKENS, MAX_TEMPERATURE

from peltier_training.data.labels import TaskType
from peltier_training.errors import TrainingError

_BOUNDS = (
    ("max_new_tokens", 1, MAX_NEW_TOKENS),
    ("num_beams", 1, MAX_BEAMS),
    ("completion_temperature", 0, MAX_TEMPERATURE),
)
_CLOSED: tuple[TaskType, ...] = ("classification", "regression")


@dataclass(frozen=True)
class TextOptions:
    """None is the default of each: `template` by the number of texts, `task_prefix` by the preset, `targets` digits,
    `regression_step` 0.2, `answer` "score" for a closed task and "generate" for text2text, `max_new_tokens` the longest
    target of the training data with its end, `num_beams` 1, `completion_temperature` 1.
    """

    template: str | None = None
    task_prefix: bool | None = None
    targets: str | None = None
    regression_step: float | None = None
    answer: Literal["score", "generate"] | None = None
    max_new_tokens: int | None = None
    num_beams: int | None = None
    completion_temperature: float | None = None

    @property
    def given(self) -> list[str]:
        """Names of the options that are not left to their defaults."""
        return [field.name for field in fields(self) if getattr(self, field.name) is not None]

    def check(self, task_type: TaskType) -> None:
        """Raise a `TrainingError` for a value that cannot be, or that this type of task has no use for."""
        for name, least, most in _BOUNDS:
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise TrainingError(f"{name} is {value}; it must be from {least} to {most:g}")
        if self.regression_step is not None and not 0 < self.regression_step < math.inf:
            raise TrainingError(f"regression_step is {self.regression_step}; it must be a number above 0")
        if self.answer not in (None, "score", "generate"):
            raise TrainingError(f"answer is {self.answer!r}; it must be 'score' or 'generate'")
        if self.answer == "score" and task_type not in _CLOSED:
            raise TrainingError(f"answer 'score' needs label strings to score; {task_type} has none")
        for name, wanted in (("targets", "classification"), ("regression_step", "regression")):
            if getattr(self, name) is not None and task_type != wanted:
                raise TrainingError(f"{name} is for {wanted}; the task type is {task_type}")

    def resolved(self, task_type: TaskType, *, task_prefix: bool) -> "TextOptions":
        """With the defaults that depend on the preset and on the type of task."""
        return replace(
            self,
            task_prefix=task_prefix if self.task_prefix is None else self.task_prefix,
            answer=self.answer or ("score" if task_type in _CLOSED else "generate"),
        )
