"""The harness of all benchmarks: their command lines, measurements by turns, ratios and percentiles, and tables.

Measurements take turns, so that the speed of the machine and other programs cancel out of the ratios of one run.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Hashable, Mapping, Sequence
from functools import partial
from pathlib import Path
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


def print_milliseconds(what: str, seconds: Sequence[float]) -> None:
    """Prints median, 90th percentile and maximum, and how many there are."""
    shown = (
        f"{name} {1e3 * percentile(seconds, of):7.2f} ms" for name, of in (("median", 50), ("p90", 90), ("max", 100))
    )
    print(f"{what:36}", *shown, f"n {len(seconds)}", sep="   ", flush=True)


class Table:
    """Columns of text: the first is aligned at its left, the others at their right. The heads are printed at once."""

    def __init__(self, *heads: str, first: int = 30) -> None:
        """`first` is the width of the first column."""
        self._widths = [first, *(max(10, len(head) + 2) for head in heads[1:])]
        self.row(*heads)

    def row(self, *cells: object) -> None:
        """Prints one line; a cell that is None stays empty."""
        own, *others = ("" if cell is None else str(cell) for cell in cells)
        widths = zip(others, self._widths[1:], strict=False)
        print((own.ljust(self._widths[0]) + "".join(cell.rjust(width) for cell, width in widths)).rstrip(), flush=True)


def median(values: Sequence[float] | None, form: str = ".2f") -> str:
    """The median of the rounds as a cell, which is empty if there are none."""
    return format(statistics.median(values), form) if values else ""


def create_parser(doc: str | None, **defaults: int | float | str | tuple[int, ...]) -> argparse.ArgumentParser:
    """A parser whose help begins with the docstring of the benchmark, as it is written. It has a flag for each of
    `defaults`, whose value has the same type; a tuple stands for one value or several."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in defaults.items():
        flag = f"--{name.replace('_', '-')}"
        if isinstance(default, tuple):
            parser.add_argument(
                flag, type=type(default[0]), nargs="+", default=list(default), help=f"default: {default}"
            )
        else:
            parser.add_argument(flag, type=type(default), default=default, help=f"default: {default}")
    return parser


def add_data(parser: argparse.ArgumentParser, what: str = "SST-2's validation.jsonl.gz") -> None:
    """The flag of a benchmark that reads sentences."""
    parser.add_argument("--data", type=Path, help=f"{what}; without it, sentences of such lengths")


def add_json(parser: argparse.ArgumentParser, what: str = "what was measured in each round") -> None:
    """The flag of a benchmark whose figures other programs read."""
    parser.add_argument("--json", type=Path, help=f"also write {what} to this file")


def write_json(options: argparse.Namespace, found: object) -> None:
    """Writes `found` to the file of `--json`, if there is one."""
    if options.json:
        options.json.write_text(json.dumps(found))
