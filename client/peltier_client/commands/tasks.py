"""The commands for tasks: upload, list, predict, delete."""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from pydantic import BaseModel

from peltier_client.bulk.progress import transfer
from peltier_client.commands.arguments import (
    DEFAULT_BATCH_SIZE,
    DEFAULT_CONCURRENCY,
    ApiKey,
    BatchSize,
    Concurrency,
    Json,
    TaskArgument,
    TextColumns,
    Url,
    checked,
    connect,
    print_result,
)
from peltier_client.commands.predict_file import Interrupted, Job, predict_file
from peltier_client.commands.predict_tasks import names_several, predict_tasks, split_tasks
from peltier_client.commands.tables import print_adapters, print_predictions, print_truncation, shown_live
from peltier_client.commands.task_names import complete_task
from peltier_client.exchange.connection import DEFAULT_URL
from peltier_client.protocol import (
    MAX_BEAMS,
    MAX_PRIORITY,
    MAX_TEMPERATURE,
    AdapterSummary,
    Aggregation,
    TextTuple,
    UploadedVersion,
    check_alias,
    check_name,
)
from peltier_client.resources.predict import PredictOptions
from peltier_client.synchronous.client import Client

ArtifactArgument = Annotated[
    Path, typer.Argument(metavar="F.safetensors", help="The artifact.", exists=True, dir_okay=False, readable=True)
]
NameOption = Annotated[
    str | None,
    typer.Option(metavar="TASK", help="Name to publish under. Default: the manifest's.", callback=checked(check_name)),
]
AtOnce = Annotated[
    str | None,
    typer.Option(metavar="ALIAS", help="Point this alias to the version.", callback=checked(check_alias)),
]
Tasks = Annotated[
    str,
    typer.Argument(
        metavar="TASK",
        help="name, name@3 or name@alias; for one TEXT also several (a,b), or PREFIX* for all names with a prefix.",
        callback=checked(split_tasks),
        autocompletion=complete_task,
    ),
]
Texts = Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="One or more texts, or none with --file.")]
Pairs = Annotated[
    list[str] | None, typer.Option("--pair", metavar="TEXT", help="Second text of a pair, once for each TEXT.")
]
Thirds = Annotated[
    list[str] | None, typer.Option("--third", metavar="TEXT", help="Third text of a triple, once for each TEXT.")
]
PriorityOption = Annotated[
    int,
    typer.Option(
        min=-MAX_PRIORITY, max=MAX_PRIORITY, help="Priority among your tenant's queued requests; higher runs first."
    ),
]
_FILES = "A file of inputs"
File = Annotated[
    Path | None,
    typer.Option(
        exists=True,
        dir_okay=False,
        readable=True,
        rich_help_panel=_FILES,
        help="Input rows, .jsonl, .csv or .tsv (.gz too).",
    ),
]
OutputOption = Annotated[
    Path | None,
    typer.Option(
        rich_help_panel=_FILES,
        help="Output file of JSON lines, one per row of --file; compressed if its name ends in .gz.",
    ),
]
Resume = Annotated[
    bool, typer.Option("--resume", rich_help_panel=_FILES, help="Continue after the rows in OUTPUT.part.")
]
TopK = Annotated[int | None, typer.Option(min=1, help="Return the scores of this many best labels.")]
Dimensions = Annotated[int | None, typer.Option(min=1, help="Return this many values of an embedding.")]
Stride = Annotated[
    int | None,
    typer.Option(min=0, help="Read a long text in windows that share this many tokens (entities and spans)."),
]
Aggregate = Annotated[
    Aggregation | None, typer.Option(help="How the tokens of a word or an entity get one label. Default: first.")
]
StreamOption = Annotated[bool, typer.Option("--stream", help="Show generated texts as they are written.")]
MaxNewTokens = Annotated[int | None, typer.Option(min=1, help="Maximum tokens of a generated text.")]
NumBeams = Annotated[int | None, typer.Option(min=1, max=MAX_BEAMS, help="Number of beams.")]
TemperatureOption = Annotated[
    float | None, typer.Option(min=0, max=MAX_TEMPERATURE, help="Sampling temperature; 0 is greedy.")
]
TopPOption = Annotated[
    float | None, typer.Option(max=1, help="Sample from the most probable tokens up to this total probability.")
]
SeedOption = Annotated[int | None, typer.Option(help="Seed of the sampling.")]


class AdapterList(BaseModel):
    """What `peltier list --json` prints."""

    adapters: list[AdapterSummary]


class Deleted(BaseModel):
    """What `peltier delete --json` prints."""

    deleted: str


def upload(  # noqa: PLR0913 - each is a word of the command line
    file: ArtifactArgument,
    name: NameOption = None,
    alias: AtOnce = None,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    json: Json = False,
) -> None:
    """Publish an artifact. If a version with the same bytes exists, print that version instead."""
    with connect(url, api_key) as client, transfer(f"uploading {file.name}") as report:
        version = client.upload(file, name, alias, on_progress=report)
    print_result(version, _uploaded(version), json=json)


def list_adapters(url: Url = DEFAULT_URL, api_key: ApiKey = None, json: Json = False) -> None:
    """List the published adapters."""
    with connect(url, api_key) as client:
        adapters = list(client.adapters())
    none = "no adapters yet; publish one with: peltier upload F.safetensors"
    print_result(AdapterList(adapters=adapters), (lambda: print_adapters(adapters)) if adapters else none, json=json)


def predict(  # noqa: PLR0913 - each is a word of the command line
    task: Tasks,
    texts: Texts = None,
    pair: Pairs = None,
    third: Thirds = None,
    priority: PriorityOption = 0,
    stream: StreamOption = False,
    max_new_tokens: MaxNewTokens = None,
    num_beams: NumBeams = None,
    temperature: TemperatureOption = None,
    top_p: TopPOption = None,
    seed: SeedOption = None,
    top_k: TopK = None,
    dimensions: Dimensions = None,
    stride: Stride = None,
    aggregation: Aggregate = None,
    file: File = None,
    output: OutputOption = None,
    text_column: TextColumns = None,
    batch_size: BatchSize = DEFAULT_BATCH_SIZE,
    concurrency: Concurrency = DEFAULT_CONCURRENCY,
    resume: Resume = False,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    json: Json = False,
) -> None:
    """Predict for texts, for one text with several tasks, or for every row of a file."""
    options: PredictOptions = {
        "priority": priority,
        "max_new_tokens": max_new_tokens,
        "num_beams": num_beams,
        "temperature": temperature,
        "top_p": top_p,
        "seed": seed,
        "top_k": top_k,
        "dimensions": dimensions,
        "stride": stride,
    }
    if aggregation is not None:
        options["aggregation"] = aggregation
    if names_several(task) and (file is not None or stream):
        raise typer.BadParameter("several tasks answer one TEXT, without --file and --stream")
    if file is not None:
        if texts or pair or third or stream or output is None:
            raise typer.BadParameter("--file needs --output and excludes TEXT, --pair, --third and --stream")
        job = Job(task, file, output, text_column or ["text"], options, batch_size, concurrency, resume)
        _predict_file(job, url, api_key, json=json)
        return
    if output is not None or text_column or resume:
        raise typer.BadParameter("--output, --text-column and --resume need --file")
    if not texts:
        raise typer.BadParameter("give a TEXT or --file")
    inputs = _together(texts, pair, third)
    with connect(url, api_key) as client:
        if names_several(task):
            predict_tasks(client, task, inputs, options, json=json)
        elif stream:
            _print_streams(client, task, inputs, options, json=json)
        else:
            _predict_texts(client, task, inputs, options, json=json)


def delete(task: TaskArgument, url: Url = DEFAULT_URL, api_key: ApiKey = None, json: Json = False) -> None:
    """Delete an adapter, or one version of it (TASK@3)."""
    with connect(url, api_key) as client:
        client.delete(task)
    print_result(Deleted(deleted=task), f"deleted {task}", json=json)


def _uploaded(version: UploadedVersion) -> str:
    done = f"{version.name}@{version.version} already holds these bytes; nothing was published"
    if version.created:
        done = f"published {version.name} version {version.version} ({version.preset}, {version.digest})"
    is_new_live = version.created and set(version.live) == {version.version}
    # Older servers do not send `live`.
    return done if is_new_live or not version.live else f"{done} (live: {shown_live(version)})"


def _predict_texts(
    client: Client, task: str, inputs: Sequence[str] | Sequence[TextTuple], options: PredictOptions, *, json: bool
) -> None:
    predictions = client.predict(task, inputs, **options)
    print_truncation(task, predictions.usage.truncated_inputs, len(inputs))
    texts = [value if isinstance(value, str) else value[0] for value in inputs]
    print_result(predictions.body, lambda: print_predictions(texts, predictions), json=json)


def _predict_file(job: Job, url: str, api_key: str | None, *, json: bool) -> None:
    try:
        summary = predict_file(job, url, api_key)
    except Interrupted as interrupted:
        typer.echo(str(interrupted), err=True)
        raise
    print_truncation(job.task, summary.truncated_inputs, summary.rows)
    answered = ", ".join(f"{count:,} by {name}" for name, count in summary.versions.items()) or "none answered"
    print_result(summary, f"wrote {summary.rows:,} rows to {summary.output} ({answered})", json=json)
    if summary.errors:
        typer.echo(f"error: {summary.errors:,} of {summary.rows:,} rows have an error in {summary.output}", err=True)
        raise typer.Exit(1)


def _together(
    texts: Sequence[str], pair: Sequence[str] | None, third: Sequence[str] | None
) -> Sequence[str] | Sequence[TextTuple]:
    for name, others in (("--pair", pair), ("--third", third)):
        if others and len(others) != len(texts):
            raise typer.BadParameter(
                f"{len(texts)} TEXT and {len(others)} {name} were given; each TEXT needs one {name}"
            )
    if not pair:
        if third:
            raise typer.BadParameter("--third needs --pair")
        return list(texts)
    if third:
        return list(zip(texts, pair, third, strict=True))
    return list(zip(texts, pair, strict=True))


def _print_streams(
    client: Client, task: str, inputs: Sequence[str | TextTuple], options: PredictOptions, *, json: bool
) -> None:
    if json:
        raise typer.BadParameter("--stream excludes --json, which prints whole answers")
    num_truncated = 0
    for text in inputs:
        stream = client.stream(task, text, **options)
        for piece in stream:
            typer.echo(piece, nl=False)
        typer.echo()
        assert stream.predictions is not None, "the whole answer follows the last piece"
        num_truncated += stream.predictions.usage.truncated_inputs
    print_truncation(task, num_truncated, len(inputs))
