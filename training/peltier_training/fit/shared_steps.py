"""Trainings of one process that share a backbone and their steps.

Each training runs in a thread of its own, and one thread at a time has the turn. A thread gives the turn away only at
its steps: when all trainings wait at a step, one pass computes the steps of all (`models/mixed_pass.py`), and one
backward pass their gradients. Then each goes on with its own optimizer, schedule and order of rows.

On a CPU a training ends with the weights that it has alone, with one or two threads to the last bit: frozen products
and norms compute each row by itself, whatever an adapter adds is computed from tensors of the shapes that it has alone,
and gradients are summed in the same order. Only activations see the rows of all: torch computes the last elements of a
tensor, or of a thread's part of it, which fill no vector, by other instructions. No part of published inner sizes,
multiples of 32, has such a rest with one or two threads; with more threads a tensor may be divided by three.

Whatever is global in the process, such as the current directory or torch's generator, is a training's own during its
turn.
"""

import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import islice
from pathlib import Path
from typing import Any, cast

import torch
from peltier_backbone.decoding.targets import Targets
from peltier_backbone.load import load_backbone
from peltier_backbone.text.packing import Encoded
from torch import Tensor

from peltier_training.models.mixed_pass import decode_together, forward_together
from peltier_training.models.model import HeadedAdapter, TextAdapter, TrainableAdapter
from peltier_training.models.stream import Stream

# Tokens of a pass over the rows of several trainings, which keeps about 1 MB a token on MiniLM until its backward pass.
_PASS_TOKENS = 1_024
# A written token also has logits, their softmax and a gradient, each in float32 for the whole vocabulary.
_TOKEN_BYTES, _WRITTEN_BYTES = 2**20, 3 * 4


class Stopped(BaseException):
    """A training was told to stop. No `Exception`, so that nothing on the way takes it for an error of its own."""


@dataclass
class Step:
    """One step of a training: its `rows`, with the target texts of a T5, the random numbers of each of its passes over
    them, and the loss of the outputs of these. `alone` is the whole step without the others: it returns the loss, whose
    gradients the parameters have then."""

    adapter: TrainableAdapter
    rows: Sequence[Encoded]
    targets: Targets | None
    streams: Callable[[], Sequence[Stream]]
    loss_of: Callable[[Sequence[Tensor]], Tensor]
    alone: Callable[[], Tensor]
    loss: Tensor | None = None
    error: Exception | None = None

    @cached_property
    def num_tokens(self) -> float:
        """Of all passes. A written token counts as so many as need its memory."""
        vocabulary = self.adapter.backbone.config.vocab_size
        written = 0 if self.targets is None else len(self.targets.ids)
        own = sum(map(len, self.rows)) + written * (1 + vocabulary * _WRITTEN_BYTES / _TOKEN_BYTES)
        return len(self.streams()) * own

    @property
    def first_block(self) -> int:
        """The first block that the pass computes. A T5 computes all."""
        lower = self.adapter.lower_blocks if isinstance(self.adapter, HeadedAdapter) else None
        return 0 if lower is None else lower.num

    def run_alone(self) -> None:
        """Sets the loss and the gradients of the parameters, or the error."""
        self.adapter.zero_grad()
        try:
            self.loss = self.alone()
        except Exception as error:
            self.error = error


class SharedSteps:
    """The trainings that share a backbone and their steps."""

    def __init__(self) -> None:
        self.load: Callable[..., Any] = cache(load_backbone)
        self._turn = threading.Condition()
        self._counting = threading.Lock()
        self._num_members = 0
        self._waiting: list[Step] = []
        # One thread computes all passes, because each thread keeps the memory that it has freed.
        self._passes = ThreadPoolExecutor(1, "passes")

    @contextmanager
    def join(self, directory: Path, stopping: threading.Event | None = None) -> Iterator["Member"]:
        """Takes part until the end of the block, whose code has the turn, in `directory`. The steps of the others wait
        for it from the call on. After `stopping` is set, its next step raises `Stopped`."""
        self._count(1)
        with self._turn:
            os.chdir(directory)
            try:
                yield Member(self, stopping or threading.Event())
            finally:
                self._count(-1)
                self._turn.notify_all()

    def step(self, own: Step) -> Tensor:
        """The loss of a step, whose gradients its parameters have then. Raises what this step alone raises."""
        directory = Path.cwd()
        self._waiting.append(own)
        while own.loss is None and own.error is None:
            if len(self._waiting) == self._num_members:
                self._run_all()
            else:
                self._turn.wait()
        os.chdir(directory)
        if own.error is not None:
            raise own.error
        assert own.loss is not None, "a step without an error has a loss"
        return own.loss

    def _count(self, change: int) -> None:
        with self._counting:
            self._num_members += change

    def _run_all(self) -> None:
        waiting, self._waiting = self._waiting, []
        for steps in _divide(waiting):
            self._passes.submit(_run_together, steps).result()
        self._turn.notify_all()


@dataclass(frozen=True)
class Member:
    """The place of one training among those that share steps."""

    shared: SharedSteps
    stopping: threading.Event

    def step(self, step: Step) -> Tensor:
        """See `SharedSteps.step`."""
        if not self.stopping.is_set():
            loss = self.shared.step(step)
            if not self.stopping.is_set():
                return loss
        raise Stopped


def _divide(steps: Sequence[Step]) -> Iterator[list[Step]]:
    """The steps that share a pass: those of adapters that begin at the same block."""
    groups = defaultdict[int, list[Step]](list)
    for step in steps:
        found = groups[step.first_block]
        if found and sum(one.num_tokens for one in [*found, step]) > _PASS_TOKENS:
            yield [*found]
            found.clear()
        found.append(step)
    yield from filter(None, groups.values())


def _run_together(steps: Sequence[Step]) -> None:
    """Each step gets its loss and gradients, or its own error: if they fail together, each is run alone."""
    if len(steps) > 1:
        try:
            losses = _losses(steps)
            torch.autograd.backward(losses)
        except Exception:
            losses = []
        for step, loss in zip(steps, losses, strict=False):
            step.loss = loss.detach()
        if losses:
            return
    for step in steps:
        step.run_alone()


def _losses(steps: Sequence[Step]) -> list[Tensor]:
    streams = [step.streams() for step in steps]
    passes = [step for step, own in zip(steps, streams, strict=True) for _ in own]
    outputs = iter(_compute(passes, [one for own in streams for one in own]))
    return [step.loss_of(list(islice(outputs, len(own)))) for step, own in zip(steps, streams, strict=True)]


def _compute(passes: Sequence[Step], streams: Sequence[Stream]) -> list[Tensor]:
    """The outputs of each of the passes, of which a step has one or two."""
    rows = [step.rows for step in passes]
    texts = [step.targets for step in passes if step.targets is not None]
    if texts:
        return decode_together([cast(TextAdapter, step.adapter) for step in passes], rows, texts, streams)
    return forward_together([cast(HeadedAdapter, step.adapter) for step in passes], rows, streams)
