"""`peltier predict --file`: predictions for every row of a file, written as NAME.part, which is renamed to
NAME when it is complete."""

import asyncio
import gzip
import json
import os
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import typer
from pydantic import BaseModel

from peltier_client.asynchronous import AsyncClient
from peltier_client.bulk.data_file import DataFile, DataRow, check_columns, open_rows
from peltier_client.bulk.progress import Show, progress
from peltier_client.bulk.scoring import Scored, Scorer
from peltier_client.commands.arguments import with_next_steps
from peltier_client.errors import InvalidInput, PeltierError
from peltier_client.resources.predict import PredictOptions

TIMEOUT_SECONDS = 600.0  # an answer may hold many generated texts
_MIN_MISTAKE_ROWS = 8
_START_AGAIN = "delete it to start again"


class PartFile:
    """The lines of an unfinished output, with their counts. `finish` renames it to `output`, compressed if that ends in
    .gz. An interrupted run can be resumed.

    `last_line` and `last_row` are the last row of the input that it covers, and `adapter` is the name in the last line
    with a prediction. Without `resume` an existing part file is refused, so that hours of work are not overwritten.
    """

    def __init__(self, output: Path, *, resume: bool) -> None:
        self._output = output
        self.path = output.with_name(f"{output.name}.part")
        self.num_rows = self.num_errors = self.last_line = 0
        self.last_row: dict[str, Any] = {}
        self.adapter: str | None = None
        if self.path.exists():
            if not resume:
                raise InvalidInput(f"{self.path} exists from an unfinished run; give --resume, or delete it")
            self._read()
        self._file = self.path.open("ab")

    def write(self, documents: list[dict[str, Any]]) -> None:
        """Append lines; the operating system has them when this returns."""
        # Escaped, because a JSON text may hold a lone surrogate, which UTF-8 cannot encode.
        lines = [json.dumps(document, separators=(",", ":")).encode() + b"\n" for document in documents]
        with _refused_disk(self.path):
            self._file.writelines(lines)
            self._file.flush()
        for document in documents:
            self._add(document)

    def _add(self, document: dict[str, Any]) -> None:
        """Count one more line. Raises KeyError or TypeError, and counts nothing, if it is not a line of predictions."""
        line, row, adapter = document["line"], document["row"], document.get("adapter")
        if not isinstance(line, int) or not isinstance(row, dict) or not isinstance(adapter, str | None):
            raise TypeError("a line of predictions has a line number, a row and the name of an adapter")
        self.num_rows += 1
        self.num_errors += "error" in document
        self.last_line, self.last_row = line, row
        self.adapter = adapter or self.adapter

    def finish(self) -> None:
        """Rename the part file to `output` in one step."""
        with _refused_disk(self._output):
            self._finish()

    def _finish(self) -> None:
        os.fsync(self._file.fileno())
        self._file.close()
        if self._output.suffix != ".gz":
            self.path.replace(self._output)
            return
        packed = self.path.with_name(f"{self._output.name}.packed")
        try:
            with self.path.open("rb") as lines, gzip.open(packed, "wb") as file:
                shutil.copyfileobj(lines, file)
            packed.replace(self._output)
        except BaseException:
            packed.unlink(missing_ok=True)
            raise
        self.path.unlink()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        # Closing retries lines that did not fit on the disk; that error has been raised before.
        with suppress(OSError):
            self._file.close()
        if not self.num_rows:
            self.path.unlink(missing_ok=True)

    def _read(self) -> None:
        """Count the complete lines, and cut off an incomplete last one."""
        with self.path.open("r+b") as file:
            end = 0
            for line in file:
                if not line.endswith(b"\n"):
                    break
                self._count(line)
                end += len(line)
            file.truncate(end)

    def _count(self, line: bytes) -> None:
        try:
            self._add(json.loads(line))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            place = f"{self.path}:{self.num_rows + 1}"
            raise InvalidInput(f"{place} is not a line of predictions; delete the file to start again") from error


@contextmanager
def _refused_disk(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise InvalidInput(f"{path} cannot be written: {error.strerror}") from error


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


class _OtherRun(InvalidInput):
    """The part file cannot be resumed because it belongs to another file or adapter."""


def predict_file(job: Job, url: str, api_key: str | None) -> FileSummary:
    """Run the job and create its output file when every row is done.

    After Ctrl-C, which says how far it was, and after an error, OUTPUT.part holds the finished rows.
    """
    job.check()
    with (
        with_next_steps(api_key),
        open_rows(job.file, job.columns) as rows,
        PartFile(job.output, resume=job.resume) as part,
    ):
        try:
            with progress(rows.size_bytes) as show:
                summary = asyncio.run(_run(job, AsyncClient(url, api_key, timeout=TIMEOUT_SECONDS), rows, part, show))
            part.finish()
            return summary
        except KeyboardInterrupt:
            typer.echo(f"interrupted; {_left(part)}", err=True)
            raise
        except _OtherRun:
            raise
        except PeltierError as error:
            if part.num_rows:
                error.message = f"{error.message}; {_left(part)}"
                error.args = (error.message,)
            raise


async def _run(job: Job, client: AsyncClient, rows: DataFile, part: PartFile, show: Show) -> FileSummary:
    versions, num_truncated = Counter[str](), 0
    async with client:
        scorer = Scorer(client, (job.task,), job.columns, job.options, job.batch_size, job.concurrency)
        async for batch in scorer.score(_rest(rows, part)):
            if not part.num_rows:
                _refuse_mistake(batch)
            _refuse_other_adapter(part, batch)
            part.write([to_document(scored) for scored in batch])
            versions.update(f"{one.adapter.name}@{one.adapter.version}" for one in batch if one.adapter is not None)
            num_truncated += sum(scored.num_truncated for scored in batch)
            show(rows.position, part.num_rows, part.num_errors)
    return FileSummary(
        output=str(job.output),
        rows=part.num_rows,
        errors=part.num_errors,
        truncated_inputs=num_truncated,
        versions=dict(versions),
    )


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
    num_done, cells = 0, part.last_row
    for row in rows.rows:
        if row.line > part.last_line:
            break
        num_done, cells = num_done + 1, dict(row.cells)
    else:
        row = None
    if num_done != part.num_rows:
        raise _OtherRun(f"{part.path} does not hold predictions for {rows.path}; {_START_AGAIN}")
    # Compared as JSON, because NaN does not equal itself.
    if json.dumps(cells) != json.dumps(part.last_row):
        raise _OtherRun(f"{part.path} has another row for line {part.last_line} than {rows.path}; {_START_AGAIN}")
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
    kept = part.adapter
    for adapter in [scored.adapter for scored in batch if scored.adapter is not None]:
        if kept is not None and adapter.name != kept:
            raise _OtherRun(f"{part.path} holds predictions of {kept!r}, not of {adapter.name!r}; {_START_AGAIN}")


def _left(part: PartFile) -> str:
    if not part.num_rows:
        return "no row was answered"
    return f"{part.num_rows:,} rows are in {part.path}; continue with --resume"
