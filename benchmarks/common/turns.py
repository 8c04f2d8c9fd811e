"""Measurements by turns, so that the speed of the machine and other programs cancel out of the ratios of one run."""

import statistics
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from typing import TypeVar

Name = TypeVar("Name", bound=Hashable)
Value = TypeVar("Value")
Call = Callable[[], object]
# By the name of the contender.
Rounds = dict[str, list[float]]


def by_turns(
    measures: Mapping[Name, Callable[[], Value]], rounds: int, *, warm_up: bool = True
) -> dict[Name, list[Value]]:
    """The values that each measure returns, one for each round. The warm-up calls each once and drops the values."""
    if warm_up:
        for measure in measures.values():
            measure()
    found: dict[Name, list[Value]] = {name: [] for name in measures}
    for _ in range(rounds):
        for name, measure in measures.items():
            found[name].append(measure())
    return found


def time_by_turns(calls: Mapping[Name, Call], rounds: int) -> dict[Name, list[float]]:
    """CPU seconds of this process that each call takes, round by round, after a warm-up."""
    return by_turns({name: partial(cpu_seconds, call) for name, call in calls.items()}, rounds)


def cpu_seconds(call: Call) -> float:
    """CPU seconds of this process that a call takes."""
    return seconds_of(call, time.process_time)


def seconds_of(call: Call, clock: Callable[[], float] = time.perf_counter) -> float:
    """Seconds that a call takes by a clock, by default the wall clock."""
    start = clock()
    call()
    return clock() - start


def ratios(base: Sequence[float], own: Sequence[float]) -> list[float]:
    """How many times as fast as `base` a contender was in each round, of the seconds of both."""
    return [one / other for one, other in zip(base, own, strict=True)]


def median_ratio(base: Sequence[float], own: Sequence[float]) -> float:
    """The median of `ratios`."""
    return statistics.median(ratios(base, own))


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that `percent` of all values do not exceed; NaN without values."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))] if ordered else float("nan")
