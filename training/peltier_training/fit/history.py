"""The course of a training run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class History:
    """`log` is the Trainer's, with an entry for every fiftieth of the steps and for every validation, including those
    before a resumption. `seconds` is the time of `epochs` of training in this process, without validation."""

    log: Sequence[Mapping[str, float]]
    best_step: int | None
    seconds: float
    epochs: float
