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
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

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


@dataclass
class Written:
    """Counts of a part file's lines. `last_line` and `last_row` are the last row of the input that it covers, and
    `adapter` is the name in the last line with a prediction."""

    num_rows: int = 0
    num_errors: int = 0
    last_line: int = 0
    last_row: dict[str, Any] = field(default_factory=dict)
    adapter: str | None = None

    def add(self, document: dict[str, Any]) -> None:
        """Count one more line. Raises KeyError or TypeError, and counts nothing, if it is not a line of predictions."""
        line, row, adapter = document["line"], document["row"], document.get("adapter")
        if not isinstance(line, int) or not isinstance(row, dict) or not isinstance(adapter, str | None):
            raise TypeError("a line of predictions has a line number, a row and the name of an adapter")
        self.num_rows += 1
        self.num_errors += "error" in document
        self.last_line, self.last_row = line, row
        self.adapter = adapter or self.adapter


class PartFile:
    """`finish` renames it to `output`, compressed if that ends in .gz. An interrupted run can be resumed.

    Without `resume` an existing part file is refused, so that hours of work are not overwritten.
    """

    def __init__(self, output: Path, *, resume: bool) -> None:
        self._output = output
        self.path = output.with_name(f"{output.name}.part")
        self.written = Written()
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
            self.written.add(document)

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

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Closing retries lines that did not fit on the disk; that error has been raised before.
        with suppress(OSError):
            self._file.close()
        if not self.written.num_rows:
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
            self.written.add(json.loads(line))
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            place = f"{self.path}:{self.written.num_rows + 1}"
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
