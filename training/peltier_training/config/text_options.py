"""Options for the inputs and answers of a T5; other backbones have none of them."""

import math
from dataclasses import dataclass, fields, replace
from typing import Annotated, Literal

from peltier_adapters.spec.tasks import MAX_BEAMS, MAX_NEW_TOKENS, MAX_TEMPERATURE, TaskType
from typer import Option

from peltier_training.errors import TrainingError

_BOUNDS = (
    ("max_new_tokens", 1, MAX_NEW_TOKENS),
    ("num_beams", 1, MAX_BEAMS),
    ("completion_temperature", 0, MAX_TEMPERATURE),
)
_CLOSED: tuple[TaskType, ...] = ("classification", "regression")


@dataclass(frozen=True)
class TextOptions:
    """Options of a T5; None is the default that the help names."""

    template: Annotated[
        str | None,
        Option(
            help="A known name (sst2, mrpc, mnli, …) or a text with {text}, {pair}, {third} in it. Default: the texts, "
            "numbered if there are several."
        ),
    ] = None
    task_prefix: Annotated[
        bool | None,
        Option(
            "--task-prefix/--no-task-prefix",
            help="Begin each input with the task's name. Default: as the preset does.",
        ),
    ] = None
    targets: Annotated[
        str | None, Option(help="Texts that stand for the labels: digits (default), words or a,b,c.")
    ] = None
    regression_step: Annotated[float | None, Option(help="Answer numbers in steps of this size; default 0.2.")] = None
    answer: Annotated[
        Literal["score", "generate"] | None,
        Option(help="Score the labels (score, the default) or generate a text (generate)."),
    ] = None
    max_new_tokens: Annotated[
        int | None, Option(help="Maximum tokens of an answer; default: the longest target of the training data.")
    ] = None
    num_beams: Annotated[int | None, Option(help="Number of beams of a generated answer; default 1.")] = None
    completion_temperature: Annotated[
        float | None,
        Option(help="Temperature of /v1/completions requests that name none; default 1, 0 is greedy."),
    ] = None

    @property
    def given(self) -> list[str]:
        """Names of the options that are not None."""
        return [field.name for field in fields(self) if getattr(self, field.name) is not None]

    def check(self, task_type: TaskType) -> None:
        """Raise a `TrainingError` for an invalid value, or for an option that this type of task does not use."""
        for name, least, most in _BOUNDS:
            value = getattr(self, name)
            if value is not None and not least <= value <= most:
                raise TrainingError(f"{name} is {value}; it must be from {least} to {most:g}")
        if self.regression_step is not None and not 0 < self.regression_step < math.inf:
            raise TrainingError(f"regression_step is {self.regression_step}; it must be a number above 0")
        if self.answer not in (None, "score", "generate"):
            raise TrainingError(f"answer is {self.answer!r}; it must be 'score' or 'generate'")
        if self.answer == "score" and task_type not in _CLOSED:
            raise TrainingError(f"answer 'score' needs labels; {task_type} has none")
        for name, wanted in (("targets", "classification"), ("regression_step", "regression")):
            if getattr(self, name) is not None and task_type != wanted:
                raise TrainingError(f"{name} is for {wanted}; the task type is {task_type}")

    def resolved(self, task_type: TaskType, *, task_prefix: bool) -> "TextOptions":
        """The options with the defaults that depend on the preset and on the type of task."""
        return replace(
            self,
            task_prefix=task_prefix if self.task_prefix is None else self.task_prefix,
            answer=self.answer or ("score" if task_type in _CLOSED else "generate"),
        )
