"""Answers the requests of batches, a part at a time, while live requests go first."""

import asyncio
import json
import logging
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import timedelta
from typing import NamedTuple

from peltier_adapters.errors import AdapterError
from peltier_client.errors import Unavailable
from peltier_client.protocol.batches import BatchError
from peltier_store.blobs.blobs import BlobDamaged, BlobNotFound, digest_of
from peltier_store.registry.errors import LeaseLost, QuotaReached, RegistryError
from peltier_store.registry.extensions.queue import MAX_ATTEMPTS, create_holder_name
from peltier_store.registry.extensions.queue_records import BatchPart, NewFile, StoredBatch
from peltier_store.registry.records import Reservation
from starlette.types import ASGIApp

from peltier_server.auth.keyring import Caller
from peltier_server.background import QueueTask
from peltier_server.catalog.publisher import Store
from peltier_server.extensions.batches.lines import BatchLine, BatchRequests, error_lines, result_line
from peltier_server.extensions.batches.results import BatchResults, LineFile
from peltier_server.extensions.batches.settings import BatchSettings
from peltier_server.http.app_call import AppAnswer, AppCall
from peltier_server.http.request_middleware import STORED_CALLER
from peltier_server.metrics.metrics import Metrics

logger = logging.getLogger(__name__)

# Without a change of the registry.
_LOOK_SECONDS = 10.0
# Well below the lease of a batch.
_RENEW_SECONDS = 15.0
# A part ends with the first of these; the bytes are those of requests and answers. A part of a killed server is
# computed again.
_PART_LINES = 256
_PART_BYTES = 8 * 1024 * 1024
_PART_SECONDS = 10.0
# Batches of which answers that follow a refused request are kept for the next turn, and bytes of each.
_MAX_KEPT = 8
_MAX_KEPT_BYTES = 64 * 1024 * 1024
# Requests in progress, beside live ones.
_NUM_AT_ONCE = 32
# A quota that is raised meanwhile is noticed after this time.
_MAX_PAUSE_SECONDS = 60.0
# How long no request of an expired batch could be answered until the batch ends, so that a clock that jumps ends none.
_EXPIRY_SECONDS = 3600.0
_OK = 200
# The answers of a server that cannot compute the request now, or may not yet by a quota of the tenant.
_TEMPORARY = frozenset({429, 503})
_STATES = ("validating", "in_progress", "finalizing", "cancelling")


class BatchMetrics:
    """The metrics of batches."""

    def __init__(self, metrics: Metrics) -> None:
        self.batches = metrics.gauge(
            "peltier_stored_batches", "Batches of requests in files that have not ended", "state"
        )
        self.requests = metrics.counter(
            "peltier_stored_requests_total", "Requests of such batches that this replica computed", "result"
        )


class BatchRunner:
    """Claims batches, one part of one batch at a time, and so by turns between tenants.

    The results of a part are stored, and recorded in one transaction that ends the claim. So another server goes on
    after the last part if this one ends, and each line has one result. Belongs to the event loop.
    """

    def __init__(self, app: ASGIApp, store: Store, settings: BatchSettings, metrics: BatchMetrics) -> None:
        self._app = app
        self._store = store
        self._batches = store.registry.batches
        self._max_result_bytes = settings.max_batch_result_bytes
        self._metrics = metrics
        self._name = f"server {create_holder_name()}"
        self._turns = QueueTask(self._look, "batches cannot be continued now and are tried again", _LOOK_SECONDS)
        store.sync.follow(self._turns.wake)
        # The file of the last turn, which most often is that of the next turn too.
        self._read: tuple[str, BatchRequests] | None = None
        # By batch: since when its turns on this server have had no result, and how many results it had.
        self._fruitless = dict[str, tuple[float, int]]()
        self._answered = dict[str, _Answered]()

    def start(self) -> None:
        """Starts to look for batches."""
        self._turns.start()

    async def close(self) -> None:
        """Stops. The part in progress is computed again by the server that claims the batch."""
        await self._turns.close()
        for answered in self._answered.values():
            answered.file.close()

    async def _look(self) -> bool:
        """Does one turn, if a batch waits; returns whether one did."""
        counts = await self._batches.count()
        for state in _STATES:
            self._metrics.batches.labels(state).set(counts.get(state, 0))
        if not counts:
            self._fruitless.clear()
        batch = await self._batches.claim(self._name) if counts else None
        if batch is None:
            self._read = None
            return False
        renewing = asyncio.create_task(self._renew(batch))
        try:
            await self._take_turn(batch)
        except LeaseLost:
            logger.warning("another server has taken the batch %s", batch.id)
        except AdapterError:
            with suppress(RegistryError):
                await self._batches.release(batch.id, self._name, pause=timedelta(seconds=_LOOK_SECONDS))
            raise
        except asyncio.CancelledError:
            with suppress(RegistryError):
                await asyncio.shield(self._batches.release(batch.id, self._name))
            raise
        finally:
            renewing.cancel()
        return True

    async def _renew(self, batch: StoredBatch) -> None:
        while True:
            await asyncio.sleep(_RENEW_SECONDS)
            with suppress(RegistryError):
                await self._batches.renew(batch.id, self._name)

    async def _take_turn(self, batch: StoredBatch) -> None:
        if batch.attempts > MAX_ATTEMPTS:
            reason = f"{MAX_ATTEMPTS} servers ended before its next results; memory may have run out"
            await self._finish(batch, "failed", errors=[BatchError(code="server_error", message=reason)])
        elif batch.state in ("cancelling", "finalizing"):
            await self._finish(batch, "cancelled" if batch.state == "cancelling" else "completed")
        else:
            await self._go_on(batch)

    async def _go_on(self, batch: StoredBatch) -> None:
        try:
            requests = await self._requests(batch)
        except (BlobNotFound, BlobDamaged):
            error = BatchError(code="invalid_file", message="the bytes of the input file are missing or damaged")
            await self._finish(batch, "failed", errors=[error])
            return
        if requests.errors:
            await self._finish(batch, "failed", errors=requests.errors)
        elif batch.state == "validating":
            await self._batches.begin(batch.id, self._name, num_lines=len(requests))
        else:
            await self._add_part(batch, requests)

    async def _requests(self, batch: StoredBatch) -> BatchRequests:
        if self._read is None or self._read[0] != batch.id:
            self._read = None
            file = await self._store.registry.files.find(batch.tenant, batch.input_file_id)
            data = await self._store.blobs.get(file.digest)
            self._read = batch.id, await asyncio.to_thread(BatchRequests, data, batch.endpoint)
        return self._read[1]

    async def _add_part(self, batch: StoredBatch, requests: BatchRequests) -> None:
        stored = sum(part.size_bytes for part in await self._batches.parts(batch.id))
        with BatchResults() as results:
            pause = 0.0
            if stored > self._max_result_bytes:
                message = f"the results of the batch have more than the maximum of {self._max_result_bytes} bytes"
                rest = error_lines(batch.id, requests.lines(batch.num_done), "results_too_large", message)
                await asyncio.to_thread(results.add_errors, rest)
            else:
                pause = await self._answer(batch, requests, results)
            if results.completed.num_lines + results.failed.num_lines:
                self._fruitless.pop(batch.id, None)
                await self._store_part(batch, results)
            else:
                await self._wait(batch, requests, pause)

    async def _store_part(self, batch: StoredBatch, results: BatchResults) -> None:
        completed, failed = results.completed.num_lines, results.failed.num_lines
        await asyncio.to_thread(results.completed.append, results.failed)
        data = results.completed.content()
        reservation = await self._put(data)
        part = BatchPart(batch.num_done, reservation.digest, len(data), completed, failed)
        try:
            await self._batches.add_part(batch.id, self._name, reservation, part)
        except QuotaReached as error:
            await self._finish(batch, "failed", errors=[BatchError(code="storage_full", message=str(error))])
            return
        self._metrics.requests.labels("completed").inc(completed)
        self._metrics.requests.labels("failed").inc(failed)

    async def _wait(self, batch: StoredBatch, requests: BatchRequests, pause: float) -> None:
        """Ends a turn without results. Nobody takes the batch again before `pause` seconds have passed."""
        since, num_done = self._fruitless.get(batch.id, (0.0, -1))
        if num_done != batch.num_done:
            since = time.monotonic()
            self._fruitless[batch.id] = since, batch.num_done
        is_late = batch.served_at is not None and batch.expires_at <= batch.served_at
        if is_late and time.monotonic() - since >= _EXPIRY_SECONDS:
            del self._fruitless[batch.id]
            message = f"the request was not computed within the completion window of {batch.completion_window}"
            rest = error_lines(batch.id, requests.lines(batch.num_done), "batch_expired", message)
            await self._finish(batch, "expired", rest)
            return
        pause = min(pause, _MAX_PAUSE_SECONDS)
        await self._batches.release(batch.id, self._name, pause=timedelta(seconds=pause))
        asyncio.get_running_loop().call_later(pause, self._turns.wake)

    async def _answer(self, batch: StoredBatch, requests: BatchRequests, results: BatchResults) -> float:
        """Adds the results of the first lines, as many as a part may have, in their order.

        Returns after how many seconds a request that has no result yet may be sent again.
        """
        turn, answered = _Turn(), self._answered.pop(batch.id, None) or _Answered()
        try:
            async with asyncio.TaskGroup() as group:
                for line in requests.lines(batch.num_done, batch.num_done + _PART_LINES):
                    if line.number in answered.places:
                        continue
                    await turn.places.acquire()
                    if turn.num_bytes and turn.is_over:
                        break
                    turn.num_bytes += len(line.body)
                    group.create_task(self._ask(batch, line, turn, answered))
            await asyncio.to_thread(answered.move, batch.num_done, results)
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from None
        finally:
            self._keep(batch.id, answered)
        return turn.pause

    def _keep(self, batch_id: str, answered: "_Answered") -> None:
        """Keeps answers that follow a request without one for the next turn."""
        if not answered.places or answered.file.num_bytes > _MAX_KEPT_BYTES:
            answered.file.close()
            return
        self._answered[batch_id] = answered
        if len(self._answered) > _MAX_KEPT:
            self._answered.pop(next(iter(self._answered))).file.close()

    async def _ask(self, batch: StoredBatch, line: BatchLine, turn: "_Turn", answered: "_Answered") -> None:
        """Adds the server's own answer to a request, unless it has to wait for another turn."""
        caller = Caller(batch.tenant, frozenset({"predict"}), batch.created_by)
        headers = {"content-type": "application/json", "x-request-id": f"{batch.id}-{line.number}"}
        call = AppCall("POST", batch.endpoint, line.body, headers, {STORED_CALLER: caller})
        try:
            answer = await call.send(self._app)
            # A store or an adapter that stays away is the result of the request. Other requests wait for another turn.
            if answer.status in _TEMPORARY and not _is_unavailable(answer):
                turn.pause = max(turn.pause, float(answer.headers.get("retry-after", 1)))
                return
            turn.num_bytes += len(answer.body)
            place = await asyncio.to_thread(answered.file.add, result_line(batch.id, line, answer))
            answered.places[line.number] = _Place(answer.status == _OK, *place)
        finally:
            turn.places.release()

    async def _finish(
        self,
        batch: StoredBatch,
        state: str,
        rest: Iterable[bytes] = (),
        *,
        errors: Sequence[BatchError] | None = None,
    ) -> None:
        """Ends a batch with all its results, and with the errors of the `rest` of its lines."""
        with BatchResults() as results:
            for part in await self._batches.parts(batch.id):
                try:
                    await results.add_part(self._store.blobs, part)
                except (BlobNotFound, BlobDamaged):
                    message = f"the stored results from request {part.first_line} on are missing or damaged"
                    state, errors = "failed", [BatchError(code="results_lost", message=message)]
            await asyncio.to_thread(results.add_errors, rest)
            output = await self._new_file(f"{batch.id}_output.jsonl", results.completed)
            error = await self._new_file(f"{batch.id}_error.jsonl", results.failed)
        given = None if errors is None else [one.model_dump() for one in errors]
        await self._batches.finish(batch.id, self._name, state, output=output, error=error, errors=given)
        logger.info("the batch %s is %s", batch.id, state)

    async def _new_file(self, name: str, lines: LineFile) -> NewFile | None:
        if not lines.num_lines:
            return None
        return NewFile(await self._put(lines.content()), name, lines.num_bytes, lines.num_lines)

    async def _put(self, data: memoryview) -> Reservation:
        reservation = await self._store.registry.reserve(await asyncio.to_thread(digest_of, data))
        await self._store.blobs.put(data)
        return reservation


class _Place(NamedTuple):
    """Where the result of a request is in the file of a turn."""

    is_completed: bool
    start: int
    size: int


class _Turn:
    """The requests of a turn. After the first one that has to wait, no others begin."""

    def __init__(self) -> None:
        self.ends_at = time.monotonic() + _PART_SECONDS
        self.places = asyncio.Semaphore(_NUM_AT_ONCE)
        self.num_bytes = 0
        self.pause = 0.0

    @property
    def is_over(self) -> bool:
        """Whether no more requests begin."""
        return self.pause > 0 or self.num_bytes > _PART_BYTES or time.monotonic() > self.ends_at


class _Answered:
    """Results of requests by the numbers of their lines, in the order in which they came."""

    def __init__(self) -> None:
        self.file = LineFile()
        self.places = dict[int, _Place]()

    def move(self, number: int, results: BatchResults) -> None:
        """Moves those from line `number` on up to the first request that has none, and forgets those of earlier lines:
        another server has answered them too."""
        self.places = {line: place for line, place in self.places.items() if line >= number}
        while place := self.places.pop(number, None):
            file = results.completed if place.is_completed else results.failed
            file.add(self.file.read(place.start, place.size))
            number += 1


def _is_unavailable(answer: AppAnswer) -> bool:
    return answer.status == Unavailable.status and json.loads(answer.body)["error"]["code"] == Unavailable.code
