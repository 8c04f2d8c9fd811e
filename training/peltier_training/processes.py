"""The processes that torchrun starts for one training run, each with its share of the rows, and their CPU threads.

torch is imported only by the functions that need it, because commands call others before they need torch."""

import os
from typing import Annotated

import typer
from peltier_backbone.machine.cores import default_threads, wait_passively

from peltier_training.errors import TrainingError

ThreadsOption = Annotated[
    int | None, typer.Option(help="CPU threads. Default: OMP_NUM_THREADS, or the number of usable cores.")
]


def is_first() -> bool:
    """Whether this process evaluates, writes and prints; the others only train."""
    return os.environ.get("RANK", "0") == "0"


def num_processes() -> int:
    """The number of processes that share each step's rows."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def take_device(device: str) -> None:
    """Make "cuda" the GPU with this process's local rank."""
    import torch

    if device != "cpu" and torch.cuda.is_available() and "LOCAL_RANK" in os.environ:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))


def leave_group() -> None:
    """Leave the process group, so that each process may end by itself."""
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()


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
