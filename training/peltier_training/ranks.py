"""The processes that torchrun starts for one training run; each trains on its share of the rows.

torch is imported only by the functions that need it, because commands call `is_first` before they need torch."""

import os


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


def part() -> None:
    """Leave the process group, so that each process may end by itself."""
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()
