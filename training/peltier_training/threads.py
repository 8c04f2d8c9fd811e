"""The CPU threads of a command. torch is imported only when it is told their number."""

from typing import Annotated

import typer
from peltier_backbone.machine.cores import default_threads, wait_passively

from peltier_training.errors import TrainingError

Threads = Annotated[
    int | None, typer.Option(help="CPU threads. Default: OMP_NUM_THREADS, or the number of usable cores.")
]


def choose_threads(given: int | None) -> int:
    """The number given with `--threads`, or `default_threads`. Call it before importing torch, because it also makes
    waiting threads sleep. Raises a `TrainingError` for a number below 1."""
    wait_passively()
    if given is not None and given < 1:
        raise TrainingError(f"threads is {given}; it must be a number of at least 1")
    return default_threads() if given is None else given


def use_threads(threads: int | None) -> None:
    """Set the number of torch's threads; None leaves it as it is."""
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
