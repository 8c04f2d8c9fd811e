"""`peltier sweep`. torch and transformers are imported when it runs."""

import json
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

_ONE = "One task without a file"


def sweep(  # noqa: PLR0913 - one parameter a flag
    output: Annotated[Path, typer.Option(help="Folder of the results; the same command continues there.")],
    file: Annotated[Path | None, typer.Argument(help="The sweep as TOML; flags win over it.")] = None,
    data: Annotated[Path | None, typer.Option(help="Where the file's paths begin. Default: its own folder.")] = None,
    task: Annotated[list[str] | None, typer.Option(help="Only this task of the file; may be repeated.")] = None,
    preset: Annotated[
        list[str] | None, typer.Option(help="A preset, or a method of the file; repeat for several.")
    ] = None,
    seed: Annotated[list[int] | None, typer.Option(help="Repeat for several. Default 0.")] = None,
    size: Annotated[list[str] | None, typer.Option(help="Training rows, drawn by the seed, or all; repeat.")] = None,
    epochs: Annotated[list[int] | None, typer.Option(help="Repeat for several.")] = None,
    learning_rate: Annotated[list[float] | None, typer.Option(help="Repeat for several.")] = None,
    batch_size: Annotated[list[int] | None, typer.Option(help="Repeat for several.")] = None,
    max_length: Annotated[list[int] | None, typer.Option(help="Longest input in tokens. Repeat for several.")] = None,
    set_: Annotated[
        list[str] | None, typer.Option("--set", help="A setting of the presets, NAME=VALUE; repeat a name to vary it.")
    ] = None,
    backbone: Annotated[str | None, typer.Option(help="A directory, a hub id or minilm. Default minilm.")] = None,
    device: Annotated[str | None, typer.Option(help="auto, cpu or cuda. Default auto.")] = None,
    train: Annotated[Path | None, typer.Option(help="Training examples of --task.", rich_help_panel=_ONE)] = None,
    validation: Annotated[Path | None, typer.Option(help="Validation examples.", rich_help_panel=_ONE)] = None,
    text_column: Annotated[
        list[str] | None, typer.Option(help="A text column; twice for a pair.", rich_help_panel=_ONE)
    ] = None,
    label_column: Annotated[
        str | None, typer.Option(help="Column of the label. Default label.", rich_help_panel=_ONE)
    ] = None,
    task_type: Annotated[
        str | None,
        typer.Option(help="classification (the default), multilabel, regression or text2text.", rich_help_panel=_ONE),
    ] = None,
    label_separator: Annotated[
        str | None, typer.Option(help="Between the labels of a multi-label cell.", rich_help_panel=_ONE)
    ] = None,
    skip_bad_rows: Annotated[
        bool | None, typer.Option("--skip-bad-rows", help="Leave bad rows out.", rich_help_panel=_ONE)
    ] = None,
    workers: Annotated[int | None, typer.Option(help="Trials at a time. Default: one a GPU, else one a core.")] = None,
    executor: Annotated[
        str, typer.Option(help="What runs them: processes, or ray, on RAY_ADDRESS's cluster or one of its own.")
    ] = "processes",
    by: Annotated[
        list[str] | None, typer.Option(help="Group the table by this (task, method, size, seed, …); repeat.")
    ] = None,
    retry: Annotated[bool, typer.Option("--retry", help="Run failed trials again.")] = False,
    json_output: Annotated[bool, typer.Option("--json", help="Print the table as JSON.")] = False,
) -> None:
    """Train presets x seeds x sizes x hyper-parameters, and compare them in a table and plots."""
    from peltier_training.errors import TrainingError
    from peltier_training.sweep.description import create_description, read_description
    from peltier_training.sweep.flags import Flags, OneTask
    from peltier_training.sweep.grid import Grid

    details = {
        "text_columns": text_column,
        "label_column": label_column,
        "task_type": task_type,
        "label_separator": label_separator,
        "skip_bad_rows": skip_bad_rows,
    }
    flags = Flags(
        tasks=task or (),
        presets=preset or (),
        sizes=size or (),
        plain={"seeds": seed, "backbone": backbone, "device": device},
        numbers={"epochs": epochs, "learning_rate": learning_rate, "batch_size": batch_size, "max_length": max_length},
        settings=set_ or (),
        one_task=OneTask(train, validation, details),
    )
    description = create_description(flags.over(read_description(file) if file is not None else {}))
    root = data or (file.parent if file is not None else Path())
    console = Console(stderr=True, highlight=False, markup=False)
    grid = Grid(description, root, output)
    for line in grid.skipped:
        console.print(line, soft_wrap=True)
    trials = grid.trials()
    # What is wrong with the sweep is said before torch is imported, which takes seconds.
    from peltier_training.sweep.executor import open_executor
    from peltier_training.sweep.rendering import to_json, to_rich
    from peltier_training.sweep.sweep import Sweep

    try:
        with open_executor(executor, description.device, workers) as opened:
            plan = Sweep(trials, output, opened, by)
            table = plan.run(lambda line: console.print(line, soft_wrap=True), retry=retry)
    except KeyboardInterrupt:
        console.print("stopped; the same command goes on from here")
        raise
    if json_output:
        print(json.dumps({"rows": to_json(table)}))
    else:
        Console().print(to_rich(table))
    if num_failed := sum(row.failed for row in table.rows):
        raise TrainingError(f"{num_failed} of {len(trials)} trials failed; {output}/results.jsonl says why")
