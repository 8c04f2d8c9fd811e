"""Progress of a long command: a bar if stderr is a terminal. Otherwise the progress in a file is printed every ten
seconds, and that of a transfer is not."""

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from peltier_client.exchange.transfer import OnProgress

_SECONDS_BETWEEN_LINES = 10.0


# Takes the progress so far: bytes of the input, rows, and rows with an error.
Show = Callable[[int, int, int], None]


@contextmanager
def progress(size_bytes: int, console: Console | None = None) -> Iterator[Show]:
    """Shows on stderr how much of a file of `size_bytes` has been read."""
    console = console or Console(stderr=True)
    if not console.is_terminal:
        yield _lines(size_bytes)
        return
    columns = (BarColumn(), TaskProgressColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=size_bytes)

        def show(position: int, num_rows: int, num_errors: int) -> None:
            bar.update(task, completed=position, description=_counts(num_rows, num_errors))

        yield show


@contextmanager
def transfer(what: str, console: Console | None = None) -> Iterator[OnProgress]:
    """Shows on stderr how much of a file has been transferred; nothing if stderr is not a terminal."""
    console = console or Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(what, total=None)

        def report(num_bytes: int, size_bytes: int | None) -> None:
            bar.update(task, completed=num_bytes, total=size_bytes)

        yield report


def _lines(size_bytes: int) -> Show:
    due = time.monotonic() + _SECONDS_BETWEEN_LINES

    def show(position: int, num_rows: int, num_errors: int) -> None:
        nonlocal due
        if time.monotonic() >= due:
            due = time.monotonic() + _SECONDS_BETWEEN_LINES
            share = position / size_bytes if size_bytes else 1.0
            print(f"{share:.0%}, {_counts(num_rows, num_errors)}", file=sys.stderr, flush=True)

    return show


def _counts(num_rows: int, num_errors: int) -> str:
    errors = f", {num_errors:,} with an error" if num_errors else ""
    return f"{num_rows:,} rows{errors}"
