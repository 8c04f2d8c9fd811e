"""`peltier predict --file`: predictions for every row of a file, written to another file."""

import asyncio
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from peltier_client.asynchronous import AsyncClient
from peltier_client.bulk.data_file import DataFile, DataRow, check_columns, open_rows
from peltier_client.bulk.part_file import PartFile
from peltier_client.bulk.progress import Show, progress
from peltier_client.bulk.scoring import Scored, Scorer
from peltier_client.commands.arguments import with_next_steps
from peltier_client.errors import InvalidInput, PeltierError
from peltier_client.resources.predict import PredictOptions

TIMEOUT_SECONDS = 600.0  # an answer may hold many generated texts
_MIN_MISTAKE_ROWS = 8


@dataclass(frozen=True)
class Job:
    """Which rows go to which task, and where the answers are written."""

    task: str
    file: Path
    output: Path
    columns: Sequence[str]
    options: PredictOptions
    batch_size: int
    concurrency: int
    resume: bool = False

    def check(self) -> None:
        """Raise `InvalidInput` for files that cannot be used, before anything is sent or written."""
        check_columns(self.columns)
        if not self.output.parent.is_dir() or self.output.is_dir():
            raise InvalidInput(f"output {self.output} cannot be written: it must be a file in a folder that exists")
        if self.output.exists() and self.output.samefile(self.file):
            raise InvalidInput(f"output {self.output} is the input file; choose another")


class FileSummary(BaseModel):
    """What `peltier predict --file --json` prints. `versions` counts the rows that each adapter version answered.

    `rows` and `errors` count the whole file; with `--resume`, `versions` and `truncated_inputs` count this run only.
    """

    output: str
    rows: int
    errors: int
    truncated_inputs: int = 0
    versions: dict[str, int] = {}


class _OtherRun(Exception):
    """The part file cannot be resumed because it belongs to another file or adapter."""


class Interrupted(KeyboardInterrupt):
    """Ctrl-C; the message counts the finished rows."""


@dataclass
class _Tally:
    versions: Counter[str] = field(default_factory=Counter)
    num_truncated: int = 0

    def add(self, batch: Sequence[Scored]) -> None:
        adapters = [scored.adapter for scored in batch if scored.adapter is not None]
        self.versions.update(f"{adapter.name}@{adapter.version}" for adapter in adapters)
        self.num_truncated += sum(scored.num_truncated for scored in batch)


def predict_file(job: Job, url: str, api_key: str | None) -> FileSummary:
    """Run the job and create its output file when every row is done.

    Raises `Interrupted` at Ctrl-C. After that, and after an error, OUTPUT.part holds the finished rows.
    """
    job.check()
    with (
        with_next_steps(api_key),
        open_rows(job.file, job.columns) as rows,
        PartFile(job.output, resume=job.resume) as part,
    ):
        tally = _run_here(job, AsyncClient(url, api_key, timeout=TIMEOUT_SECONDS), rows, part)
        done = part.written
    return FileSummary(
        output=str(job.output),
        rows=done.num_rows,
        errors=done.num_errors,
        truncated_inputs=tally.num_truncated,
        versions=dict(tally.versions),
    )


def _run_here(job: Job, client: AsyncClient, rows: DataFile, part: PartFile) -> _Tally:
    try:
        with progress(rows.size_bytes) as show:
            tally = asyncio.run(_run(job, client, rows, part, show))
        part.finish()
        return tally
    except _OtherRun as error:
        raise InvalidInput(f"{error}; delete it to start again") from None
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted; {_left(part)}") from None
    except PeltierError as error:
        if part.written.num_rows:
            error.message = f"{error.message}; {_left(part)}"
            error.args = (error.message,)
        raise


async def _run(job: Job, client: AsyncClient, rows: DataFile, part: PartFile, show: Show) -> _Tally:
    tally = _Tally()
    async with client:
        scorer = Scorer(client, (job.task,), job.columns, job.options, job.batch_size, job.concurrency)
        async for batch in scorer.score(_rest(rows, part)):
            if not part.written.num_rows:
                _refuse_mistake(batch)
            _refuse_other_adapter(part, batch)
            part.write([to_document(scored) for scored in batch])
            tally.add(batch)
            show(rows.position, part.written.num_rows, part.written.num_errors)
    return tally


def to_document(scored: Scored) -> dict[str, Any]:
    """One line of the output: the row's line number and cells, and its prediction or error."""
    document: dict[str, Any] = {"line": scored.row.line, "row": dict(scored.row.cells)}
    if scored.prediction is not None and scored.adapter is not None:
        prediction = scored.prediction.model_dump(exclude_none=True)
        return {**document, "prediction": prediction, "adapter": scored.adapter.name, "version": scored.adapter.version}
    assert scored.error is not None, "a row has a prediction or an error"
    return {**document, "error": {"code": scored.error.code, "message": scored.error.message}}


def _rest(rows: DataFile, part: PartFile) -> Iterator[DataRow]:
    """The rows that are not in the part file; `_OtherRun` if the part file belongs to another input."""
    written = part.written
    num_done, cells = 0, written.last_row
    for row in rows.rows:
        if row.line > written.last_line:
            break
        num_done, cells = num_done + 1, dict(row.cells)
    else:
        row = None
    if num_done != written.num_rows:
        raise _OtherRun(f"{part.path} does not hold predictions for {rows.path}")
    # Compared as JSON, because NaN does not equal itself.
    if json.dumps(cells) != json.dumps(written.last_row):
        raise _OtherRun(f"{part.path} has another row for line {written.last_line} than {rows.path}")
    if row is not None:
        yield row
    yield from rows.rows


def _refuse_mistake(batch: Sequence[Scored]) -> None:
    """If every row of the first request has the same error, the request is wrong rather than the rows."""
    errors = [scored.error for scored in batch if scored.error is not None]
    messages = {scored.error.message for scored in batch if scored.error is not None and scored.row.problem is None}
    if len(errors) == len(batch) >= _MIN_MISTAKE_ROWS and len(messages) == 1:
        raise InvalidInput(f"every one of the first {len(batch)} rows is refused: {messages.pop()}")


def _refuse_other_adapter(part: PartFile, batch: Sequence[Scored]) -> None:
    """All predictions of one output come from one adapter."""
    kept = part.written.adapter
    for adapter in [scored.adapter for scored in batch if scored.adapter is not None]:
        if kept is not None and adapter.name != kept:
            raise _OtherRun(f"{part.path} holds predictions of {kept!r}, not of {adapter.name!r}")


def _left(part: PartFile) -> str:
    if not part.written.num_rows:
        return "no row was answered"
    return f"{part.written.num_rows:,} rows are in {part.path}; continue with --resume"
