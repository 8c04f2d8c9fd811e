"""`peltier train` and `peltier evaluate`. torch and transformers are imported when a command runs."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from peltier_adapters.presets.composition import parse_overrides
from peltier_adapters.spec.tasks import parse_names
from peltier_client.commands.arguments import ApiKey
from peltier_client.commands.field_options import FieldOptions, OptionValues, with_field_options
from rich.console import Console
from rich.table import Table

from peltier_training.config.preparation import Prepared, prepare, prepare_evaluation
from peltier_training.config.recipe import GivenValue, ResolvedChoice, print_resolved
from peltier_training.config.run import Hyperparameters, Run
from peltier_training.config.task_options import EmbeddingOptions, TextOptions
from peltier_training.data.data import Data, skipped_lines
from peltier_training.data.examples import LabelledRows
from peltier_training.errors import InvalidRowsError, TrainingError
from peltier_training.on_server import SentOptions, ServerOption, ServerTraining, given_options, train_on_server
from peltier_training.processes import ThreadsOption, choose_threads, is_first, use_threads

if TYPE_CHECKING:
    from peltier_training.train import TrainingResult

_BACKBONE = "A directory, a hub id or minilm."
Overrides = Annotated[list[str] | None, typer.Option("--set", help="A setting of the preset, NAME=VALUE.")]


@with_field_options
def train(  # noqa: PLR0913 - one parameter a flag or group of flags
    *,
    subject: Annotated[OptionValues, FieldOptions(Run, ("task", "task_type"))],
    train: Annotated[OptionValues, FieldOptions(Data, ("train",))],
    validation: Annotated[
        Path | None, typer.Option(help="Validation examples. Without them a server takes a share of the others.")
    ] = None,
    columns: Annotated[
        OptionValues, FieldOptions(Data, ("text_columns", "label_column", "label_separator", "skip_bad_rows"))
    ],
    labels: Annotated[str | None, typer.Option(help="Names for integer labels: a,b,c or a JSON file.")] = None,
    output: Annotated[Path | None, typer.Option(help="The artifact to write. Default: TASK.safetensors.")] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="A paper's settings, PRESET/BACKBONE/BENCHMARK[/TASK], such as compacter/t5-base/glue/mrpc. Flags "
            "override it."
        ),
    ] = None,
    preset: Annotated[
        str | None, typer.Option(help="The method, see `peltier presets`. Default: the recipe's, or compacter.")
    ] = None,
    backbone: Annotated[str | None, typer.Option(help=f"{_BACKBONE} Default: the recipe's, or minilm.")] = None,
    numbers: Annotated[OptionValues, FieldOptions(Hyperparameters, given=True)],
    text: Annotated[OptionValues, FieldOptions(TextOptions, panel="On a T5")],
    embedding: Annotated[OptionValues, FieldOptions(EmbeddingOptions, panel="Embeddings")],
    set_: Overrides = None,
    directory: Annotated[
        Path | None, typer.Option(help="Checkpoints and TensorBoard. Default: runs/TASK-PRESET-SEED.")
    ] = None,
    execution: Annotated[OptionValues, FieldOptions(Run, ("resume", "device", "dtype", "merge_report"))],
    threads: ThreadsOption = None,
    server: ServerOption = None,
    sent: Annotated[OptionValues, FieldOptions(SentOptions, given=True, panel="With --server")],
    api_key: ApiKey = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print the metrics as JSON.")] = False,
    context: typer.Context,
) -> None:
    """Train an adapter on labelled examples and write its artifact, or have a server train and publish it."""
    if server is not None:
        asked = ServerTraining(given_options(context), parse_overrides(set_ or []), labels)
        train_on_server(asked, server, api_key, as_json=json_output)
        return
    if sent:
        raise typer.BadParameter("it needs --server", param_hint=f"--{min(sent).replace('_', '-')}")
    if validation is None:
        raise typer.BadParameter("a training on this machine needs it", param_hint="--validation")
    data = {**train, **columns, "validation": validation}
    num_threads = choose_threads(threads)
    choice = ResolvedChoice.find(recipe, subject["task"], preset, backbone)
    given = GivenValue(numbers, parse_overrides(set_ or []), text["template"] or None)
    hyperparameters = Hyperparameters(**choice.numbers(given))
    names = parse_names("labels", labels) if labels is not None else None
    run = Run(
        **subject,
        **execution,
        preset=choice.preset,
        backbone=choice.backbone,
        data=Data(**data | {"labels": names, "label_separator": data["label_separator"] or None}),
        output=output or Path(f"{subject['task']}.safetensors"),
        directory=directory or Path("runs") / f"{subject['task']}-{choice.preset}-{hyperparameters.seed}",
        hyperparameters=hyperparameters,
        text=TextOptions(**text | {"template": choice.template(given)}),
        embedding=EmbeddingOptions(**embedding),
        overrides=choice.settings(given),
        threads=num_threads,
    )
    with _skip_named():
        prepared = prepare(run)  # before torch is imported, which takes seconds
    if is_first():
        _print_skipped({run.data.train: prepared.data.train, run.data.validation: prepared.data.validation})
        if recipe is not None:
            print_resolved(prepared.run, choice, given)
    _train(prepared, as_json=json_output)


def _train(prepared: Prepared, *, as_json: bool) -> None:
    """Train in every process of the run. The first one prints the result."""
    from peltier_training.train import finish, learn

    learned = learn(prepared)
    if is_first():
        _print_result(finish(learned), prepared.run.output, as_json)


def _print_result(result: "TrainingResult", output: Path, as_json: bool) -> None:
    """Print the metrics, and the report's warnings on stderr as the last lines."""
    from peltier_training.report.page import report_paths

    report, page = result.report, report_paths(output)[1]
    title = f"{output}: {report.preset} for {report.name}"
    if report.reason is not None:
        title = f"{page}: {report.preset} for {report.name}; no artifact, because {report.reason}"
    _print(dict(sorted(result.metrics.items())), {}, as_json, title)
    for sentence in report.warnings:
        typer.echo(f"warning: {sentence}", err=True)
    typer.echo(f"report: {page}", err=True)


@with_field_options
def evaluate(  # noqa: PLR0913 - one parameter a flag or group of flags
    *,
    artifact: Annotated[Path, typer.Argument(help="The artifact, *.safetensors.")],
    data: Annotated[Path, typer.Option(help="Labelled examples, .jsonl, .csv or .tsv (.gz too).")],
    backbone: Annotated[str, typer.Option(help=_BACKBONE)] = "minilm",
    columns: Annotated[
        OptionValues,
        FieldOptions(
            Data, ("text_columns", "label_column", "label_separator"), given=True, unset="Default: as it was trained."
        ),
    ],
    rows: Annotated[OptionValues, FieldOptions(Data, ("skip_bad_rows",))],
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    dtype: Annotated[str, typer.Option(help="float32, bfloat16, or on a CPU int8.")] = "float32",
    threads: ThreadsOption = None,
    json_output: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Measure an artifact on labelled examples, through the server's own forward."""
    num_threads = choose_threads(threads)
    with _skip_named():
        found = prepare_evaluation(artifact, data, backbone, {**columns, **rows})
    _print_skipped({data: found})
    from peltier_adapters.artifact.artifact import load_artifact
    from peltier_backbone.load import load_backbone

    from peltier_training.evaluate.adapters import evaluate as evaluate_artifact

    use_threads(num_threads)
    model = load_backbone(backbone, device=device, dtype=dtype)
    metrics = dict(evaluate_artifact(model, load_artifact(artifact, model), found.examples).metrics)
    skipped = {"skipped_rows": len(found.bad)} if rows["skip_bad_rows"] else {}
    title = f"{artifact} on {data} (CPU threads: {num_threads})"
    _print(metrics, {"rows": len(found.examples), **skipped}, json_output, title)


@contextmanager
def _skip_named() -> Iterator[None]:
    """Errors about rows name the flag that leaves them out."""
    try:
        yield
    except InvalidRowsError as error:
        raise TrainingError(f"{error} (--skip-bad-rows skips such rows)") from None


def _print_skipped(parts: dict[Path, LabelledRows]) -> None:
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
