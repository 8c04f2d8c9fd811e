"""`peltier predict`: texts, one text with several tasks, or every row of a file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, cast

import typer

from peltier_client.commands.arguments import (
    DEFAULT_BATCH_SIZE,
    DEFAULT_CONCURRENCY,
    ApiKey,
    BatchSize,
    Concurrency,
    Json,
    TextColumns,
    Url,
    connect,
    print_result,
    task_argument,
)
from peltier_client.commands.field_options import FieldOptions, OptionValues, with_field_options
from peltier_client.commands.predict_file import Job, predict_file
from peltier_client.commands.tables import print_predictions, print_task_answers, print_truncation
from peltier_client.errors import PeltierError
from peltier_client.exchange.connection import DEFAULT_URL
from peltier_client.exchange.results import Predictions
from peltier_client.protocol.names import TaskReference, group_prefix
from peltier_client.protocol.predict import MAX_BEAMS, MAX_PRIORITY, MAX_TEMPERATURE, Aggregation, TextTuple
from peltier_client.resources.predict import PredictOptions
from peltier_client.synchronous import Client

Texts = Annotated[list[str] | None, typer.Argument(metavar="TEXT", help="One or more texts, or none with --file.")]
Pairs = Annotated[
    list[str] | None, typer.Option("--pair", metavar="TEXT", help="Second text of a pair, once for each TEXT.")
]
Thirds = Annotated[
    list[str] | None, typer.Option("--third", metavar="TEXT", help="Third text of a triple, once for each TEXT.")
]
StreamOption = Annotated[bool, typer.Option("--stream", help="Show generated texts as they are written.")]
Aggregate = Annotated[
    Aggregation | None, typer.Option(help="How the tokens of a word or an entity get one label. Default: first.")
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


def split_tasks(task: str) -> list[str]:
    """The tasks and groups in the first word of the command. Raises `InvalidInput` for one that is neither."""
    tasks = task.split(",")
    for one in tasks:
        if group_prefix(one) is None:
            TaskReference.parse(one)
    return tasks


def names_several(task: str) -> bool:
    """Whether the first word of the command names several tasks or a group."""
    return "," in task or group_prefix(task) is not None


Tasks = Annotated[
    str,
    task_argument(
        "TASK",
        "name, name@3 or name@alias; for one TEXT also several (a,b), or PREFIX* for all names with a prefix.",
        split_tasks,
    ),
]


@dataclass(frozen=True)
class PredictFlags:
    """Options of a prediction; None is the server's default."""

    priority: Annotated[
        int,
        typer.Option(
            min=-MAX_PRIORITY, max=MAX_PRIORITY, help="Priority among your tenant's queued requests; higher runs first."
        ),
    ] = 0
    max_new_tokens: Annotated[int | None, typer.Option(min=1, help="Maximum tokens of a generated text.")] = None
    num_beams: Annotated[int | None, typer.Option(min=1, max=MAX_BEAMS, help="Number of beams.")] = None
    temperature: Annotated[
        float | None, typer.Option(min=0, max=MAX_TEMPERATURE, help="Sampling temperature; 0 is greedy.")
    ] = None
    top_p: Annotated[
        float | None, typer.Option(max=1, help="Sample from the most probable tokens up to this total probability.")
    ] = None
    seed: Annotated[int | None, typer.Option(help="Seed of the sampling.")] = None
    top_k: Annotated[int | None, typer.Option(min=1, help="Return the scores of this many best labels.")] = None
    dimensions: Annotated[int | None, typer.Option(min=1, help="Return this many values of an embedding.")] = None
    prompt_name: Annotated[
        str | None, typer.Option(help="Put this prompt of the backbone's checkpoint before a text that is embedded.")
    ] = None
    stride: Annotated[
        int | None,
        typer.Option(min=0, help="Read a long text in windows that share this many tokens (entities and spans)."),
    ] = None


@with_field_options
def predict(  # noqa: PLR0913 - each is a word of the command line
    task: Tasks,
    flags: Annotated[OptionValues, FieldOptions(PredictFlags)],
    texts: Texts = None,
    pair: Pairs = None,
    third: Thirds = None,
    stream: StreamOption = False,
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
    given = {name: value for name, value in {**flags, "aggregation": aggregation}.items() if value is not None}
    options = cast(PredictOptions, given)
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
            _predict_tasks(client, task, inputs, options, json=json)
        elif stream:
            _print_streams(client, task, inputs, options, json=json)
        else:
            _predict_texts(client, task, inputs, options, json=json)


def _predict_texts(
    client: Client, task: str, inputs: Sequence[str] | Sequence[TextTuple], options: PredictOptions, *, json: bool
) -> None:
    predictions = client.predict(task, inputs, **options)
    print_truncation(task, predictions.usage.truncated_inputs, len(inputs))
    texts = [value if isinstance(value, str) else value[0] for value in inputs]
    print_result(predictions.body, lambda: print_predictions(texts, predictions), json=json)


def _predict_file(job: Job, url: str, api_key: str | None, *, json: bool) -> None:
    summary = predict_file(job, url, api_key)
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


def _predict_tasks(
    client: Client, task: str, inputs: Sequence[str] | Sequence[TextTuple], options: PredictOptions, *, json: bool
) -> None:
    """Print the answer of each task; the command fails if a task has an error instead."""
    if len(inputs) != 1:
        raise typer.BadParameter(f"several tasks answer one TEXT; {len(inputs)} were given")
    found = client.predict_tasks(split_tasks(task), inputs[0], **options)
    results = [one.body() if isinstance(one, PeltierError) else one.body for one in found.values()]
    print_result({"tasks": list(found), "results": results}, lambda: print_task_answers(found), json=json)
    _fail_with(found)


def _fail_with(found: Mapping[str, Predictions | PeltierError]) -> None:
    errors = {task: one for task, one in found.items() if isinstance(one, PeltierError)}
    for task, error in errors.items():
        typer.echo(f"error: {task}: {error}", err=True)
    if errors:
        raise typer.Exit(1)
