"""Predictions for many rows: requests of several rows, a bounded number of them at a time, answered in order."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from dataclasses import dataclass

from peltier_client.asynchronous import AsyncClient
from peltier_client.bulk.data_file import DataRow, read_input
from peltier_client.errors import (
    BadRequest,
    InferenceFailed,
    InvalidInput,
    PeltierError,
    QuotaExceeded,
    TooLarge,
    Unavailable,
)
from peltier_client.exchange.results import Prediction
from peltier_client.protocol.predict import AdapterRef, TextTuple
from peltier_client.resources.predict import PredictOptions

# Errors that one input may cause. Any other error ends the command.
_INPUT_ERRORS = (BadRequest, InvalidInput, TooLarge, InferenceFailed)
# Keeps a request's body far below the limits of servers.
_MAX_REQUEST_CHARS = 256 * 1024
# The client itself retries for a minute. Long commands wait for a busy server several times as long.
_NUM_TRIES = 5
_MAX_PAUSE_SECONDS = 60.0

Sent = tuple[DataRow, str | TextTuple]


@dataclass(frozen=True)
class Scored:
    """A row with its prediction and the adapter that gave it, or with an error."""

    row: DataRow
    prediction: Prediction | None = None
    adapter: AdapterRef | None = None
    error: PeltierError | None = None
    num_truncated: int = 0


@dataclass(frozen=True)
class Scorer:
    """Asks `tasks` about rows, with at most `batch_size` rows per request and `concurrency` requests at a time."""

    client: AsyncClient
    tasks: Sequence[str]
    columns: Sequence[str]
    options: PredictOptions
    batch_size: int
    concurrency: int

    async def score(self, rows: Iterable[DataRow]) -> AsyncGenerator[list[Scored], None]:
        """The answers to `rows` in their order, one batch at a time: for each batch a list from each task in turn.

        Only the rows of running requests are in memory. A row that cannot be read or answered has an error. Raises
        errors that concern all rows: a missing task, a refused key, a lost connection.
        """
        questions = ((task, batch) for batch in cut_batches(rows, self.batch_size) for task in self.tasks)
        asked: deque[asyncio.Task[list[Scored]]] = deque()
        try:
            for task, batch in questions:
                asked.append(asyncio.create_task(self._answer(task, batch)))
                if len(asked) >= self.concurrency:
                    yield await asked.popleft()
            while asked:
                yield await asked.popleft()
        finally:
            for request in asked:
                request.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    async def _answer(self, task: str, rows: Sequence[DataRow]) -> list[Scored]:
        scored: dict[int, Scored] = {}
        sent: list[Sent] = []
        for row in rows:
            try:
                sent.append((row, read_input(row, self.columns)))
            except InvalidInput as error:
                scored[row.line] = Scored(row, error=error)
        for answer in await self._ask(task, sent) if sent else ():
            scored[answer.row.line] = answer
        return [scored[row.line] for row in rows]

    async def _ask(self, task: str, sent: Sequence[Sent]) -> list[Scored]:
        """Send one request. If an input makes it fail, send its halves, down to the single row that fails."""
        try:
            return await self._predict(task, sent)
        except _INPUT_ERRORS as error:
            if len(sent) == 1:
                return [Scored(sent[0][0], error=error)]
            half = len(sent) // 2
            return [*await self._ask(task, sent[:half]), *await self._ask(task, sent[half:])]

    async def _predict(self, task: str, sent: Sequence[Sent]) -> list[Scored]:
        inputs = [input_ for _, input_ in sent]
        for left in reversed(range(_NUM_TRIES)):
            try:
                found = await self.client.predict(task, inputs, **self.options)  # type: ignore[arg-type]
                break
            except (QuotaExceeded, Unavailable) as error:
                if not left:
                    raise
                await asyncio.sleep(min(error.retry_after or 1.0, _MAX_PAUSE_SECONDS))
        # The server counts truncated inputs per request; the first row carries the count.
        counts = [found.usage.truncated_inputs, *[0] * (len(sent) - 1)]
        return [
            Scored(row, prediction, found.adapter, num_truncated=count)
            for (row, _), prediction, count in zip(sent, found, counts, strict=True)
        ]


def cut_batches(rows: Iterable[DataRow], batch_size: int) -> Iterator[list[DataRow]]:
    """Batches of at most `batch_size` rows and `_MAX_REQUEST_CHARS` characters; a longer row is alone."""
    batch: list[DataRow] = []
    num_chars = 0
    for row in rows:
        length = sum(len(cell) for cell in row.cells.values() if isinstance(cell, str))
        if batch and (len(batch) == batch_size or num_chars + length > _MAX_REQUEST_CHARS):
            yield batch
            batch, num_chars = [], 0
        batch.append(row)
        num_chars += length
    if batch:
        yield batch
