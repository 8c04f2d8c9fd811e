"""`peltier train` and `peltier evaluate`. torch and transformers are imported when a command runs."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from peltier_training.threads import Threads, choose_threads, use_threads

if TYPE_CHECKING:
    from peltier_training.data.examples import Rows
    from peltier_training.train import Result

_T5 = "On a T5"
Columns = Annotated[
    list[str] | None, typer.Option("--text-column", help="A text column; twice for a pair, three times on a T5.")
]
Separator = Annotated[
    str | None,
    typer.Option(help="Between the labels of a multi-label cell, as '|' or ';'. Default: cells are JSON lists."),
]
SkipBadRows = Annotated[
    bool, typer.Option("--skip-bad-rows", help="Leave out rows that cannot be used, and say which.")
]
Overrides = Annotated[list[str] | None, typer.Option("--set", help="A setting of the preset, NAME=VALUE.")]


def train(  # noqa: PLR0913 - one parameter a flag
    task: Annotated[str, typer.Option(help="Name of the task and of its adapter.")],
    train: Annotated[Path, typer.Option(help="Training examples, .jsonl, .csv or .tsv (.gz too).")],
    validation: Annotated[Path, typer.Option(help="Validation examples.")],
    output: Annotated[Path | None, typer.Option(help="The artifact to write; default TASK.safetensors.")] = None,
    recipe: Annotated[
        str | None,
        typer.Option(help="A paper's settings, PRESET/BACKBONE/BENCHMARK[/TASK] as in compacter/t5-base/glue/mrpc."),
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="The method, see `peltier presets`. Default: the recipe's, or compacter.")
    ] = None,
    backbone: Annotated[
        str | None, typer.Option(help="A directory, a hub id or minilm. Default: the recipe's, or minilm.")
    ] = None,
    text_column: Columns = None,
    label_column: Annotated[str, typer.Option(help="Column of the label.")] = "label",
    labels: Annotated[str | None, typer.Option(help="Names for integer labels: a,b,c or a JSON file.")] = None,
    label_separator: Separator = None,
    skip_bad_rows: SkipBadRows = False,
    task_type: Annotated[
        str, typer.Option(help="classification, multilabel, regression or text2text.")
    ] = "classification",
    epochs: Annotated[
        int | None, typer.Option(help="Passes over the training data. Default: 300 steps, and at least 5 passes.")
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="Default: the recipe's, or the preset's, raised on narrow encoders.")
    ] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Rows a step. Default: 16 for fewer than 2,000 training rows, else 32.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seeds initialisation, order and routing. Default 0.")] = None,
    warmup: Annotated[
        float | None,
        typer.Option(help="Warm-up steps; below 1, a fraction of all steps. Default 0.06."),
    ] = None,
    weight_decay: Annotated[float | None, typer.Option(help="AdamW weight decay. Default 0.0.")] = None,
    dropout: Annotated[float | None, typer.Option(help="Dropout before the output layer. Default 0.1.")] = None,
    max_length: Annotated[int | None, typer.Option(help="Longest input in tokens. Default 128.")] = None,
    metric: Annotated[
        str | None, typer.Option(help="Metric that chooses the best epoch. Default: the task type's own.")
    ] = None,
    eval_rows: Annotated[
        int | None,
        typer.Option(
            help="Inputs that choose the best epoch. Default: all with --epochs, else as many as are trained on and at "
            "least 500. The end is measured on all."
        ),
    ] = None,
    patience: Annotated[
        int | None,
        typer.Option(
            help="Stop after this many validations without improvement. Default: never with --epochs, else 8."
        ),
    ] = None,
    template: Annotated[
        str | None,
        typer.Option(
            help="A known name (sst2, mrpc, mnli, …) or a text with {text}, {pair}, {third} in it.", rich_help_panel=_T5
        ),
    ] = None,
    task_prefix: Annotated[
        bool | None,
        typer.Option(
            "--task-prefix/--no-task-prefix",
            help="Begin each input with the task's name. Default: the preset's own.",
            rich_help_panel=_T5,
        ),
    ] = None,
    targets: Annotated[
        str | None,
        typer.Option(help="Texts that stand for the labels: digits (default), words or a,b,c.", rich_help_panel=_T5),
    ] = None,
    regression_step: Annotated[
        float | None,
        typer.Option(help="Numbers are answered in steps of this size; default 0.2.", rich_help_panel=_T5),
    ] = None,
    answer: Annotated[
        str | None,
        typer.Option(help="How a closed task answers: score (default) or generate.", rich_help_panel=_T5),
    ] = None,
    max_new_tokens: Annotated[
        int | None,
        typer.Option(help="Longest answer; default: the longest target in training.", rich_help_panel=_T5),
    ] = None,
    num_beams: Annotated[int | None, typer.Option(help="Beams of a generated answer.", rich_help_panel=_T5)] = None,
    completion_temperature: Annotated[
        float | None,
        typer.Option(
            help="Temperature of /v1/completions requests without one; default 1, 0 is greedy.", rich_help_panel=_T5
        ),
    ] = None,
    set_: Overrides = None,
    directory: Annotated[
        Path | None, typer.Option(help="Checkpoints and TensorBoard; default runs/TASK-PRESET-SEED.")
    ] = None,
    resume: Annotated[
        bool,
        typer.Option("--resume", help="Continue from the newest checkpoint; without it, earlier ones are removed."),
    ] = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    dtype: Annotated[
        str, typer.Option(help="Precision of the frozen backbone in training: float32 or bfloat16.")
    ] = "float32",
    threads: Threads = None,
    merge_report: Annotated[
        bool | None,
        typer.Option(
            "--merge-report/--no-merge-report",
            help="AdaMix: measure random, fixed and ensembled routes too. Default: of each AdaMix.",
        ),
    ] = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print the metrics as JSON.")] = False,
) -> None:
    """Train an adapter on labelled examples and write its artifact."""
    num_threads = choose_threads(threads)
    from peltier_adapters.composition import parse_overrides
    from peltier_adapters.names import parse_names

    from peltier_training.config.preparation import prepare
    from peltier_training.config.resolution import Choice, Given, print_resolved
    from peltier_training.config.run import Hyperparameters, Run
    from peltier_training.config.text_options import TextOptions
    from peltier_training.data.data import Data
    from peltier_training.ranks import is_first

    choice = Choice.find(recipe, task, preset, backbone)
    hyperparameters = {
        "epochs": epochs,
        "learning_rate": learning_rate,
        "batch_size": batch_size,
        "seed": seed,
        "warmup": warmup,
        "weight_decay": weight_decay,
        "dropout": dropout,
        "max_length": max_length,
        "metric": metric,
        "eval_rows": eval_rows,
        "patience": patience,
    }
    given = Given(hyperparameters, parse_overrides(set_ or []), template or None)
    numbers = Hyperparameters(**choice.numbers(given))
    names = parse_names("labels", labels) if labels is not None else None
    run = Run(
        task=task,
        task_type=task_type,  # type: ignore[arg-type]
        preset=choice.preset,
        backbone=choice.backbone,
        data=Data(
            train,
            validation,
            tuple(text_column or ["text"]),
            label_column,
            names,
            label_separator or None,
            skip_bad_rows,
        ),
        output=output or Path(f"{task}.safetensors"),
        directory=directory or Path("runs") / f"{task}-{choice.preset}-{numbers.seed}",
        hyperparameters=numbers,
        text=TextOptions(
            template=choice.template(given),
            task_prefix=task_prefix,
            targets=targets,
            regression_step=regression_step,
            answer=answer,  # type: ignore[arg-type]
            max_new_tokens=max_new_tokens,
            num_beams=num_beams,
            completion_temperature=completion_temperature,
        ),
        overrides=choice.settings(given),
        device=device,
        dtype=dtype,
        threads=num_threads,
        resume=resume,
        merge_report=merge_report,
    )
    prepared = prepare(run)  # before torch is imported, which takes seconds
    if is_first():
        _print_skipped({train: prepared.data.train, validation: prepared.data.validation})
        if recipe is not None:
            print_resolved(prepared.run, choice, given)
    from peltier_training.train import finish, learn

    learned = learn(prepared)
    if is_first():
        _print_result(finish(learned), run.output, json_output)


def _print_result(result: "Result", output: Path, as_json: bool) -> None:
    """The metrics; and on standard error what the report warns of, last of all."""
    from peltier_training.report.files import report_paths

    report, page = result.report, report_paths(output)[1]
    title = f"{output}: {report.preset} for {report.name}"
    if report.reason is not None:
        title = f"{page}: {report.preset} for {report.name}; no artifact, for {report.reason}"
    _print(dict(sorted(result.metrics.items())), {}, as_json, title)
    for sentence in report.warnings:
        typer.echo(f"warning: {sentence}", err=True)
    typer.echo(f"report: {page}", err=True)


def evaluate(  # noqa: PLR0913 - one parameter a flag
    artifact: Annotated[Path, typer.Argument(help="The artifact, *.safetensors.")],
    data: Annotated[Path, typer.Option(help="Labelled examples, .jsonl, .csv or .tsv (.gz too).")],
    backbone: Annotated[str, typer.Option(help="A directory, a hub id or minilm.")] = "minilm",
    text_column: Columns = None,
    label_column: Annotated[str | None, typer.Option(help="Default: as it was trained.")] = None,
    label_separator: Annotated[
        str | None, typer.Option(help="Default: as it was trained; an empty one is for JSON lists.")
    ] = None,
    skip_bad_rows: SkipBadRows = False,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    dtype: Annotated[str, typer.Option(help="float32 or bfloat16.")] = "float32",
    threads: Threads = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Measure an artifact on labelled examples, through the server's own forward."""
    num_threads = choose_threads(threads)
    from peltier_training.config.preparation import prepare_evaluation

    given = {"text_columns": text_column, "label_column": label_column, "label_separator": label_separator}
    rows = prepare_evaluation(artifact, data, backbone, given, skip_bad_rows=skip_bad_rows)
    _print_skipped({data: rows})
    from peltier_adapters.artifact import load_artifact
    from peltier_backbone.load import load_backbone

    from peltier_training.evaluate.examination import evaluate as measure

    use_threads(num_threads)
    model = load_backbone(backbone, device=device, dtype=dtype)
    found = measure(model, load_artifact(artifact, model), rows.examples)
    skipped = {"skipped_rows": len(rows.bad)} if skip_bad_rows else {}
    title = f"{artifact} on {data} (CPU threads: {num_threads})"
    _print(found, {"rows": len(rows.examples), **skipped}, json_output, title)


def _print_skipped(parts: "dict[Path, Rows]") -> None:
    from peltier_training.data.labelled_data import skipped_lines

    for line in skipped_lines(parts):
        typer.echo(line, err=True)


def _print(metrics: dict[str, float], rows: dict[str, int], as_json: bool, title: str) -> None:
    if as_json:
        print(json.dumps({"metrics": metrics, **rows}))
        return
    console = Console()
    console.print(f"{title}, {rows['rows']} rows" if rows else title, soft_wrap=True)
    table = Table("metric", "value")
    for name, value in metrics.items():
        table.add_row(name, f"{value:.4f}")
    console.print(table)
