"""The CPU threads of a command. torch is imported only where they are put to use."""

from typing import Annotated

import typer
from peltier_backbone.cores import default_threads, wait_passively

from peltier_training.errors import TrainingError

Threads = Annotated[
    int | None, typer.Option(help="CPU threads. Default: OMP_NUM_THREADS, else the cores that the process may use.")
]


def choose_threads(given: int | None) -> int:
    """The number given with `--threads`, or `default_threads`; from then on waiting threads sleep. To be called before
    torch is imported. A `TrainingError` for a number below 1."""
    wait_passively()
    if given is not None and given < 1:
        raise TrainingError(f"threads is {given}; it must be a number of at least 1")
    return default_threads() if given is None else given


def use_threads(threads: int | None) -> None:
    """Let torch compute with so many threads; None leaves it as it is."""
    import torch

    if threads is not None:
        torch.set_num_threads(threads)
