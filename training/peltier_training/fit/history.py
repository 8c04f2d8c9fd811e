"""How a training went."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class History:
    """`log` is the Trainer's, an entry for every fiftieth of the steps and for every validation,
    those before a resumption among them. `seconds` were spent on `epochs` of training in this process, validation not
    counted."""

    log: Sequence[Mapping[str, float]]
    best_step: int | None
    seconds: float
    epochs: float
