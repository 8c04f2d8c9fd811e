"""`peltier sweep`. torch and transformers are imported when it runs."""

import json
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from peltier_client.commands.field_options import FieldOptions, OptionValues, with_field_options
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from peltier_training.config.run import Hyperparameters, Run
from peltier_training.data.data import Data
from peltier_training.errors import TrainingError
from peltier_training.executor.executor import ForkServer, open_executor
from peltier_training.sweep.description import Flags, create_description, read_description
from peltier_training.sweep.grid import Grid

if TYPE_CHECKING:
    from peltier_training.sweep.sweep import CountTrials, Sweep
    from peltier_training.sweep.table import SweepTable

_AXES = ("seed", "epochs", "learning_rate", "batch_size", "max_length")
_ONE = "One task without a file"


@with_field_options
def sweep(  # noqa: PLR0913 - one parameter a flag or group of flags
    *,
    output: Annotated[Path, typer.Option(help="Folder of the results; the same command continues there.")],
    file: Annotated[Path | None, typer.Argument(help="The sweep as TOML; flags override it.")] = None,
    data: Annotated[
        Path | None, typer.Option(help="Folder that paths in the file are relative to. Default: the file's.")
    ] = None,
    task: Annotated[list[str] | None, typer.Option(help="Run only this task of the file. Repeat for several.")] = None,
    preset: Annotated[
        list[str] | None, typer.Option(help="A preset, or a method of the file. Repeat for several.")
    ] = None,
    size: Annotated[
        list[str] | None, typer.Option(help="Training rows, drawn by the seed, or all. Repeat for several.")
    ] = None,
    axes: Annotated[OptionValues, FieldOptions(Hyperparameters, _AXES, given=True, repeated=True)],
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of the presets, NAME=VALUE; repeat a name to vary it.")
    ] = None,
    backbone: Annotated[str | None, typer.Option(help="A directory, a hub id or minilm. Default minilm.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda. Default auto.")] = None,
    files: Annotated[OptionValues, FieldOptions(Data, given=True, panel=_ONE)],
    kind: Annotated[OptionValues, FieldOptions(Run, ("task_type",), given=True, panel=_ONE)],
    workers: Annotated[int | None, typer.Option(help="Trials at a time. Default: one per GPU, else per core.")] = None,
    executor: Annotated[
        str, typer.Option(help="processes, or ray on the cluster at RAY_ADDRESS or, without that, on a local one.")
    ] = "processes",
    by: Annotated[
        list[str] | None,
        typer.Option(help="Group the table by this (task, method, size, seed, …). Repeat for several."),
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Run failed trials again.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """Train presets x seeds x sizes x hyper-parameters, and compare them in a table and plots."""
    flags = Flags(
        tasks=task or (),
        presets=preset or (),
        sizes=size or (),
        plain={"seeds": axes.pop("seed", None), "backbone": backbone, "device": device},
        numbers=axes,
        settings=set_ or (),
        data=files | kind,
    )
    description = create_description(flags.over(read_description(file) if file is not None else {}))
    root = data or (file.parent if file is not None else Path())
    console = Console(stderr=True, highlight=False, markup=False)
    grid = Grid(description, root, output)
    _print(grid.skipped, console)
    trials = grid.trials()
    # Nearly every mistake has been reported before torch is imported, which takes seconds.
    from peltier_training.sweep.sweep import Sweep

    server = ForkServer("peltier_training.sweep.worker")
    with _say_how_to_continue(console), open_executor(executor, server, description.device, workers) as opened:
        planned = Sweep(trials, output, opened, by)
        _print(grid.warnings(trials), console)
        table = _run(planned, console, retry=retry)
    _print_table(table, as_json=json_output)
    if num_failed := sum(row.failed for row in table.rows):
        raise TrainingError(f"{num_failed} of {len(trials)} trials failed; {output}/results.jsonl says why")


def _print(lines: Iterable[str], console: Console) -> None:
    for line in lines:
        console.print(line, soft_wrap=True)


@contextmanager
def _say_how_to_continue(console: Console) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        console.print("stopped; the same command continues from here")
        raise


def _run(sweep: "Sweep", console: Console, *, retry: bool) -> "SweepTable":
    with count_trials(console) as count:
        return sweep.run(lambda line: console.print(line, soft_wrap=True), count, retry=retry)


def _print_table(table: "SweepTable", *, as_json: bool) -> None:
    from peltier_training.sweep.table import to_json, to_rich

    if as_json:
        print(json.dumps({"rows": to_json(table)}))
    else:
        Console().print(to_rich(table))


@contextmanager
def count_trials(console: Console) -> Iterator["CountTrials"]:
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
