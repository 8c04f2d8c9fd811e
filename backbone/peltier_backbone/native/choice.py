"""Chooses what computes on the CPU: the native kernels of a level, or torch. The choice holds for the whole process."""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch

from peltier_backbone.errors import BackboneError
from peltier_backbone.native.levels import LEVEL_NAMES, machine_levels, processor_flags, processor_levels
from peltier_backbone.native.library import Library, knows
from peltier_backbone.native.self_check import check
from peltier_backbone.native.trial import LayerTrial, try_layer

_FOLDER = Path(__file__).parent
AUTO, TORCH = "auto", "torch"
# How much faster torch must be than the native kernels. In bfloat16 torch prepares a product for each number of tokens,
# and keeps it. In float32 it is the measurement error of the trial.
_WORTH_TORCH = {torch.float32: 1.1, torch.bfloat16: 1.25}

# A library is checked and tried once, also if two threads ask for it: backbones know theirs by its identity.
_LOCK = threading.RLock()

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LibraryState:
    """The library of a level, open and checked, or the `reason` why it cannot be used."""

    name: str
    library: Library | None = None
    reason: str = ""


def survey_libraries() -> list[LibraryState]:
    """The libraries of this processor's levels, the fastest first."""
    return [survey_library(level.name) for level in processor_levels()]


def survey_library(level: str) -> LibraryState:
    """The library of a level that this processor can run. It is opened and checked once."""
    return _survey(_FOLDER / f"{level}.so")


@cache
def _survey(path: Path) -> LibraryState:
    if not path.exists():
        return LibraryState(path.stem, reason="it was not built")
    try:
        library = Library(path)
        if not library.runs:
            return LibraryState(path.stem, reason="the operating system does not permit its instructions")
        check(library)
    except (OSError, AttributeError, RuntimeError) as error:
        return LibraryState(path.stem, reason=str(error))
    return LibraryState(path.stem, library)


class Choice(NamedTuple):
    """What computes in one dtype on the CPU: a library, or torch if that is None; and the reason."""

    library: Library | None
    reason: str

    @property
    def name(self) -> str:
        """The level of the library, or `torch`."""
        return TORCH if self.library is None else self.library.name


class _Process:
    """The one setting of the process."""

    kernels = AUTO


def use_kernels(kernels: str) -> None:
    """Let the whole process use the kernels `auto`, of a level, or of `torch`. Backbones that are already loaded keep
    the kernels of their products. Raises a `BackboneError` for a level that this machine cannot use."""
    _require(kernels)
    _Process.kernels = kernels


@contextmanager
def kernels_in_use(kernels: str) -> Iterator[None]:
    """`use_kernels` for the block."""
    before = _Process.kernels
    use_kernels(kernels)
    try:
        yield
    finally:
        _Process.kernels = before


def load_library() -> Library | None:
    """The native kernels of the setting: of its level, or the fastest that this machine can use. None if the setting is
    `torch`, or if none can be used."""
    with _LOCK:
        return _library(_Process.kernels)


def choose_kernels(dtype: torch.dtype) -> Choice:
    """What computes in `dtype` on the CPU: linear maps, attention, norms and adapters alike. The first call for a dtype
    takes up to 50 ms, for a trial; if torch wins it, that is logged."""
    with _LOCK:
        return _choose(_Process.kernels, dtype)


def serving_library(device: torch.device, dtype: torch.dtype) -> Library | None:
    """The kernels that compute in `dtype` on `device`. None if torch must compute: on another device than the CPU,
    while gradients are recorded, or where torch was chosen."""
    if device.type != "cpu" or torch.is_grad_enabled():
        return None
    return choose_kernels(dtype).library


def slowdown(dtype: torch.dtype) -> float:
    """How many times as long a layer takes in `dtype` as in float32 on this CPU, each by its fastest kernels."""
    return _try(dtype).fastest / _try(torch.float32).fastest


def _try(dtype: torch.dtype) -> LayerTrial:
    return try_layer(load_library(), dtype)


def _require(kernels: str) -> None:
    """Raise a `BackboneError` unless this machine can use the kernels."""
    known = (AUTO, *LEVEL_NAMES, TORCH)
    if kernels not in known:
        raise BackboneError(f"kernels {kernels!r} are unknown; they are one of {', '.join(known)}")
    if kernels in (AUTO, TORCH):
        return
    level = next((one for one in machine_levels() if one.name == kernels), None)
    if level is None:
        own = ", ".join(one.name for one in machine_levels())
        raise BackboneError(f"kernels {kernels!r} are of another machine; those of this one are {own}")
    lacking = sorted(level.flags - processor_flags())
    reason = f"this processor lacks {', '.join(lacking)}" if lacking else survey_library(kernels).reason
    if reason:
        raise BackboneError(f"kernels {kernels!r} cannot be used: {reason}")


@cache
def _library(kernels: str) -> Library | None:
    library = None if kernels == TORCH else _find_library(kernels)
    if library is not None and not library.has_threads and torch.get_num_threads() > 1:
        _log.warning("the native kernels %s run in one thread: they do not find torch's OpenMP library", library.name)
    return library


def _find_library(kernels: str) -> Library | None:
    if kernels != AUTO:
        return survey_library(kernels).library
    for state in survey_libraries():
        if state.library is not None:
            return state.library
        _log.warning("the native kernels %s are left out: %s", state.name, state.reason)
    _log.warning("there are no native kernels, so torch computes, which is slower on a CPU")
    return None


@cache
def _choose(kernels: str, dtype: torch.dtype) -> Choice:
    library = _library(kernels)
    if kernels == TORCH:
        return Choice(None, "the setting kernels is torch")
    if library is None:
        return Choice(None, "no native kernels can be used here")
    if not knows(dtype):
        return Choice(None, "the native kernels do not compute in this dtype")
    if kernels != AUTO:
        return Choice(library, f"the setting kernels is {kernels}")
    return _compare(library, dtype)


def _compare(library: Library, dtype: torch.dtype) -> Choice:
    trial = try_layer(library, dtype)
    assert trial.native is not None, "the library was tried"
    precision = str(dtype).removeprefix("torch.")
    native, plain = 1e3 * trial.native, 1e3 * trial.torch
    times = f"a layer in {precision} takes {native:.2f} ms by {library.name}, {plain:.2f} ms by torch"
    if trial.native <= trial.torch * _WORTH_TORCH[dtype]:
        return Choice(library, times)
    _log.info("torch computes in %s, not the native kernels: %s", precision, times)
    return Choice(None, times)
