"""`peltier compare`: two versions on one labelled file, through the server."""

import asyncio
from collections.abc import Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from peltier_client.asynchronous import AsyncClient
from peltier_client.bulk.answers import Answers, Case
from peltier_client.bulk.comparison import Comparison, Difference
from peltier_client.bulk.comparison import compare as judge
from peltier_client.bulk.data_file import DataRow, check_columns, open_rows, read_input
from peltier_client.bulk.progress import progress
from peltier_client.bulk.scoring import Scored, Scorer
from peltier_client.commands.arguments import (
    DEFAULT_BATCH_SIZE,
    DEFAULT_CONCURRENCY,
    ApiKey,
    BatchSize,
    Concurrency,
    Json,
    TextColumns,
    Url,
    print_result,
    task_argument,
    with_next_steps,
)
from peltier_client.commands.predict_file import TIMEOUT_SECONDS
from peltier_client.commands.tables import print_truncation, show
from peltier_client.errors import InvalidInput
from peltier_client.exchange.connection import DEFAULT_URL
from peltier_client.quality.metrics import MetricValues

_MAX_SHOWN_LABELS = 10
_MAX_SHOWN_CHARS = 200

First = Annotated[str, task_argument("TASK@1", "The first version.")]
Second = Annotated[str, task_argument("TASK@2", "The version to compare with.")]
DataOption = Annotated[
    Path,
    typer.Option(exists=True, dir_okay=False, readable=True, help="Labelled rows, .jsonl, .csv or .tsv (.gz too)."),
]
LabelColumn = Annotated[str, typer.Option(help="Column of the label.")]
Separator = Annotated[
    str | None,
    typer.Option(help="Separator of the labels in a multi-label cell, such as '|'. Default: cells are JSON lists."),
]
Differences = Annotated[int, typer.Option(min=0, help="Maximum differing rows to show.")]

_MAX_LABELS = 4096  # of a task


def compare(  # noqa: PLR0913 - each is a word of the command line
    first: First,
    second: Second,
    data: DataOption,
    text_column: TextColumns = None,
    label_column: LabelColumn = "label",
    label_separator: Separator = None,
    differences: Differences = 10,
    batch_size: BatchSize = DEFAULT_BATCH_SIZE,
    concurrency: Concurrency = DEFAULT_CONCURRENCY,
    url: Url = DEFAULT_URL,
    api_key: ApiKey = None,
    json: Json = False,
) -> None:
    """Compare two versions on labelled rows: metrics, differing rows, and a significance test."""
    columns = text_column or ["text"]
    check_columns(columns)
    answers = Answers(first), Answers(second)
    with with_next_steps(api_key):
        client = AsyncClient(url, api_key, timeout=TIMEOUT_SECONDS)
        scorer = Scorer(client, (first, second), columns, {}, batch_size, concurrency)
        cases = asyncio.run(_ask(scorer, data, label_column, answers))
    if not cases:
        raise InvalidInput(f"{data} has no rows")
    found = judge(str(data), cases, answers, label_separator, differences)
    for side in answers:
        print_truncation(side.task, side.num_truncated, len(cases))
    print_result(found, lambda: _print_comparison(found), json=json)


async def _ask(scorer: Scorer, data: Path, label_column: str, answers: tuple[Answers, Answers]) -> list[Case]:
    """Ask both versions about every row. The first row that cannot be read or answered raises, with its line."""
    cases: list[Case] = []
    with open_rows(data, [*scorer.columns, label_column]) as rows:
        async with scorer.client, aclosing(scorer.score(rows.rows)) as scored:
            with progress(rows.size_bytes) as show:
                async for batch in scored:
                    cases += [_case(data, row.row, scorer.columns, label_column) for row in batch]
                    _take(data, answers[0], batch)
                    _take(data, answers[1], await anext(scored))
                    show(rows.position, len(cases), 0)
            for side in answers:
                await _name_labels(scorer.client, side, cases)
    return cases


async def _name_labels(client: AsyncClient, answers: Answers, cases: Sequence[Case]) -> None:
    """Ask for all labels in order. Answers to requests without `top_k` may hold only the best ones."""
    if answers.names and answers.adapter is not None:
        found = await client.predict(answers.task, [cases[0].input], top_k=_MAX_LABELS)  # type: ignore[arg-type]
        if found.adapter.version == answers.adapter.version:
            answers.names = tuple(found[0].scores or ())


def _take(data: Path, answers: Answers, batch: Sequence[Scored]) -> None:
    for scored in batch:
        if scored.prediction is None or scored.adapter is None:
            reason = scored.error.message if scored.error is not None else "has no answer"
            raise InvalidInput(f"{data}:{scored.row.line} {answers.task}: {reason}")
        answers.add(scored.prediction, scored.adapter)
        answers.num_truncated += scored.num_truncated


def _case(data: Path, row: DataRow, columns: Sequence[str], label_column: str) -> Case:
    try:
        input_ = read_input(row, columns)
        if label_column not in row.cells:
            raise InvalidInput(f"has no column {label_column!r}")
    except InvalidInput as error:
        raise InvalidInput(f"{data}:{row.line} {error.message}") from None
    return Case(row.line, input_, row.cells[label_column])


def _print_comparison(found: Comparison) -> None:
    """The metrics of both, the labels and rows that differ, and the verdict in words."""
    console = Console()
    first, second = found.first, found.second
    rows = [_beside(name, first.metrics, second.metrics, name) for name in first.metrics]
    show(("metric", first.task, second.task, "difference"), rows, whole=("metric", "difference"))
    labels = sorted({*first.classes} & {*second.classes}, key=lambda label: (-abs(_change(found, label)), label))
    by_label = [
        (*_beside(label, first.classes[label], second.classes[label], "f1"), f"{first.classes[label]['support']:.0f}")
        for label in labels[:_MAX_SHOWN_LABELS]
        if _change(found, label)
    ]
    if by_label:
        console.print()
        names = ("F1 of label", first.task, second.task, "difference", "rows")
        show(names, by_label, whole=("difference", "rows"))
    if found.differences:
        console.print()
        longest = _MAX_SHOWN_CHARS if console.is_terminal else None
        names = ("line", "input", "label", first.task, second.task)
        show(names, [_differing_row(row, longest) for row in found.differences], whole=("line",))
    console.print()
    Console(soft_wrap=not console.is_terminal).print(Text(found.verdict))


def _beside(name: str, first: MetricValues, second: MetricValues, metric: str) -> tuple[str, str, str, str]:
    return name, f"{first[metric]:.4f}", f"{second[metric]:.4f}", f"{second[metric] - first[metric]:+.4f}"


def _change(found: Comparison, label: str) -> float:
    return found.second.classes[label]["f1"] - found.first.classes[label]["f1"]


def _differing_row(row: Difference, longest: int | None) -> tuple[str, ...]:
    text = row.input if isinstance(row.input, str) else " | ".join(row.input)
    short = text if longest is None or len(text) <= longest else f"{text[:longest]}…"
    return str(row.line), short, *(_shown_answer(value) for value in (row.label, row.first, row.second))


def _shown_answer(value: object) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return f"{value:.4g}" if isinstance(value, float) else str(value)
