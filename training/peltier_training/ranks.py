"""The processes that torchrun starts for one training, each on its share of the rows. Without it there is one.

torch is imported when a device is taken: what `is_first` is asked before that must not wait for it."""

import os


def is_first() -> bool:
    """Whether this process measures, writes and prints; the others have nothing to do when training is over."""
    return os.environ.get("RANK", "0") == "0"


def num_processes() -> int:
    """How many processes share each step's rows."""
    return int(os.environ.get("WORLD_SIZE", "1"))


def take_device(device: str) -> None:
    """Make "cuda" the GPU of this process's number on its machine."""
    import torch

    if device != "cpu" and torch.cuda.is_available() and "LOCAL_RANK" in os.environ:
        torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))


def part() -> None:
    """No process waits for another any more, and each may end."""
    from torch import distributed

    if distributed.is_available() and distributed.is_initialized():
        distributed.destroy_process_group()
