"""How far a sweep is, below the lines of its trials."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from peltier_training.sweep.sweep import Count


@contextmanager
def count_trials(console: Console) -> Iterator[Count]:
    """A bar with the trials that are done and the time that is left; nothing if `console` is not a terminal.

    Lines that are printed on `console` appear above it.
    """
    columns = (
        TextColumn("trials"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("", total=None)

        def count(done: int, total: int) -> None:
            bar.update(task, completed=done, total=total)

        yield count
