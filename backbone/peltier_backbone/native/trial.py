"""The trial at start: one layer of BERT with adapters, by the native kernels and by torch."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

import torch
from torch import Tensor

from peltier_backbone.native.example_layer import ExampleLayer, Sizes
from peltier_backbone.native.library import Library

_SIZES = Sizes([32, 16, 48, 32], hidden=256, heads=8, inner=1024, groups=[(2, 16), (1, 24), (1, 0)])
# On a busy machine a single round can be wrong by more than the contenders differ.
_MIN_ROUNDS, _MAX_ROUNDS = 3, 5
# A trial ends after this CPU time if it has had enough rounds.
_MAX_SECONDS = 0.02


class LayerTrial(NamedTuple):
    """The seconds that a layer takes in one dtype; `native` is None without kernels."""

    native: float | None
    torch: float

    @property
    def fastest(self) -> float:
        """The seconds of the faster one."""
        return self.torch if self.native is None else min(self.native, self.torch)


@cache
def try_layer(library: Library | None, dtype: torch.dtype) -> LayerTrial:
    """The least time of several rounds on one thread, in which the contenders take turns. It is CPU time, so that other
    load on the machine does not decide the result."""
    layer = ExampleLayer(_SIZES, dtype)
    if library is None:
        (by_torch,) = _least_seconds(layer.by_torch)
        return LayerTrial(None, by_torch)
    by_library, by_torch = _least_seconds(layer.by_library(library).run, layer.by_torch)
    return LayerTrial(by_library, by_torch)


@torch.inference_mode()
def _least_seconds(*contenders: Callable[[], Tensor]) -> list[float]:
    end = time.process_time() + _MAX_SECONDS
    with _one_thread():
        for contender in contenders:
            contender()  # torch prepares its kernels at the first call
        rounds = [[_seconds(contender) for contender in contenders]]
        while len(rounds) < _MIN_ROUNDS or (len(rounds) < _MAX_ROUNDS and time.process_time() < end):
            rounds.append([_seconds(contender) for contender in contenders])
    return [min(times) for times in zip(*rounds, strict=True)]


@contextmanager
def _one_thread() -> Iterator[None]:
    """Threads that wait for each other take CPU time on a busy machine."""
    num_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(num_threads)


def _seconds(contender: Callable[[], Tensor]) -> float:
    start = time.process_time()
    contender()
    return time.process_time() - start
