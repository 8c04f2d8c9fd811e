"""Many rows through one task: in requests of several rows, a bounded number of them at a time, answered in order."""

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from dataclasses import dataclass

from peltier_client.asynchronous.client import AsyncClient
from peltier_client.bulk.row_file import Row, read_input
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
from peltier_client.protocol import AdapterRef, TextTuple
from peltier_client.resources.predict import PredictOptions

# What may be the fault of one input. Anything else ends the whole.
_OF_AN_INPUT = (BadRequest, InvalidInput, TooLarge, InferenceFailed)
# A request's body stays far below what servers take, whatever its rows are.
_MAX_REQUEST_CHARS = 256 * 1024
# The client itself tries for a minute. A busy server is waited for several times as long.
_NUM_TRIES = 5
_MAX_PAUSE_SECONDS = 60.0

Sent = tuple[Row, str | TextTuple]


@dataclass(frozen=True)
class Scored:
    """A row with its prediction and who gave it, or with the error that it has in their place."""

    row: Row
    prediction: Prediction | None = None
    adapter: AdapterRef | None = None
    error: PeltierError | None = None
    num_truncated: int = 0


@dataclass(frozen=True)
class Scorer:
    """How rows are asked: of which task, from which columns, with so many rows a request and requests at a time."""

    client: AsyncClient
    task: str
    columns: Sequence[str]
    options: PredictOptions
    batch_size: int
    concurrency: int

    async def score(self, rows: Iterable[Row]) -> AsyncGenerator[list[Scored], None]:
        """The answers to `rows` in their order, a batch at a time; of the rows only those that are asked are held.

        A row that cannot be read or answered has an error. Raises what concerns all rows: a missing task, a refused
        key, a server that is gone.
        """
        batches = cut_batches(rows, self.batch_size)
        asked: deque[asyncio.Task[list[Scored]]] = deque()
        try:
            for batch in batches:
                asked.append(asyncio.create_task(self._answer(batch)))
                if len(asked) >= self.concurrency:
                    yield await asked.popleft()
            while asked:
                yield await asked.popleft()
        finally:
            for task in asked:
                task.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    async def _answer(self, rows: Sequence[Row]) -> list[Scored]:
        scored: dict[int, Scored] = {}
        sent: list[Sent] = []
        for row in rows:
            try:
                sent.append((row, read_input(row, self.columns)))
            except InvalidInput as error:
                scored[row.line] = Scored(row, error=error)
        for one in await self._ask(sent) if sent else ():
            scored[one.row.line] = one
        return [scored[row.line] for row in rows]

    async def _ask(self, sent: Sequence[Sent]) -> list[Scored]:
        """One request; where it fails for an input, its halves, until the row that it fails for is alone."""
        try:
            return await self._predict(sent)
        except _OF_AN_INPUT as error:
            if len(sent) == 1:
                return [Scored(sent[0][0], error=error)]
            half = len(sent) // 2
            return [*await self._ask(sent[:half]), *await self._ask(sent[half:])]

    async def _predict(self, sent: Sequence[Sent]) -> list[Scored]:
        inputs = [input_ for _, input_ in sent]
        for left in reversed(range(_NUM_TRIES)):
            try:
                found = await self.client.predict(self.task, inputs, **self.options)  # type: ignore[arg-type]
                break
            except (QuotaExceeded, Unavailable) as error:
                if not left:
                    raise
                await asyncio.sleep(min(error.retry_after or 1.0, _MAX_PAUSE_SECONDS))
        # Counted by the request, so the first of its rows has them all.
        counts = [found.usage.truncated_inputs, *[0] * (len(sent) - 1)]
        return [
            Scored(row, prediction, found.adapter, num_truncated=count)
            for (row, _), prediction, count in zip(sent, found, counts, strict=True)
        ]


def cut_batches(rows: Iterable[Row], batch_size: int) -> Iterator[list[Row]]:
    """At most so many rows each, and no more text than a server takes in one request."""
    batch: list[Row] = []
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
