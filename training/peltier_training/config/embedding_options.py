"""Options of the embedding tasks; other types of tasks have none of them."""

import math
from dataclasses import dataclass, fields
from typing import Annotated

from peltier_adapters.spec.maps import MAX_SIZE
from peltier_adapters.spec.tasks import TaskType
from typer import Option

from peltier_training.errors import TrainingError


@dataclass(frozen=True)
class EmbeddingOptions:
    """Options of an embedding; None is the default that the help names."""

    projection: Annotated[
        int | None,
        Option(help="Project the pooled vector to this many values. Default: the pooled vector is the embedding."),
    ] = None
    normalize: Annotated[
        bool | None, Option("--normalize/--no-normalize", help="Answer vectors of unit length. Default: yes.")
    ] = None
    matryoshka: Annotated[
        str | None,
        Option(
            help="Sizes of shorter embeddings to train too, such as 64,128: the first values of each. Default: none."
        ),
    ] = None
    temperature: Annotated[
        float | None,
        Option(help="Temperature of the softmax over the second texts of a batch, for pairs without scores; 0.05."),
    ] = None

    @property
    def given(self) -> list[str]:
        """Names of the options that are not None."""
        return [field.name for field in fields(self) if getattr(self, field.name) is not None]

    @property
    def normalized(self) -> bool:
        """Whether the task answers vectors of unit length."""
        return self.normalize is not False

    @property
    def dimensions(self) -> tuple[int, ...]:
        """The numbers of first values that are trained to be embeddings, besides all. Raises a `TrainingError` for what
        is no list of numbers."""
        words = [word.strip() for word in (self.matryoshka or "").split(",") if word.strip()]
        if not all(word.isascii() and word.isdigit() and 0 < int(word) <= MAX_SIZE for word in words):
            raise TrainingError(f"matryoshka is {self.matryoshka!r}; it must be numbers of dimensions, such as 64,128")
        return tuple(dict.fromkeys(map(int, words)))

    def check(self, task_type: TaskType) -> None:
        """Raise a `TrainingError` for an invalid value, or for an option of another type of task."""
        if self.given and task_type != "embedding":
            raise TrainingError(f"{self.given[0]} is for embedding; the task type is {task_type}")
        if self.projection is not None and not 1 <= self.projection <= MAX_SIZE:
            raise TrainingError(f"projection is {self.projection}; it must be from 1 to {MAX_SIZE}")
        if self.temperature is not None and not 0 < self.temperature < math.inf:
            raise TrainingError(f"temperature is {self.temperature}; it must be a number above 0")
        assert self.dimensions is not None

    def check_size(self, size: int) -> None:
        """Raise a `TrainingError` for a Matryoshka dimension that an embedding of `size` values does not have."""
        if max(self.dimensions, default=0) > size:
            raise TrainingError(f"matryoshka has {max(self.dimensions)} dimensions; the embedding has {size}")
