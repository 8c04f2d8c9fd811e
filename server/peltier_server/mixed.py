"""A mixed request's items: begun in slices between which others have the event loop, and few of a tenant at a time."""

import asyncio
import logging
import time
from collections.abc import Iterator, Sequence
from http import HTTPStatus

from peltier_client.errors import ErrorBody, PeltierError, QuotaExceeded, ServerError
from peltier_client.protocol import MixedItem, PredictResponse

from peltier_server.errors import ClientGone
from peltier_server.origin import Origin
from peltier_server.preparation import Preparation
from peltier_server.service import Service
from peltier_server.target import Target
from peltier_server.tokenizing import num_chars

logger = logging.getLogger(__name__)

Result = PredictResponse | ErrorBody

# To begin a slice takes about a millisecond: a name is resolved in some ten microseconds, and a text is tokenised.
_SLICE_ITEMS = 16
_SLICE_CHARS = 1024
# What an item costs besides its text, in characters tokenised.
_COST_OF_AN_ITEM = 64


class MixedAnswer:
    """The results of one mixed request, which share the `budget` of an answer. An unknown name costs a token,
    like an input that is refused."""

    def __init__(self, service: Service, preparation: Preparation, origin: Origin, items: Sequence[MixedItem]) -> None:
        self.budget = service.predictor.open_answer(origin)
        self._service = service
        self._preparation = preparation
        self._origin = origin
        self._items = items
        self._results: list[Result | None] = [None] * len(items)
        self._room = preparation.room_for_items(origin.tenant)
        self._num_begun = 0
        self._arrived_at = time.monotonic()

    async def results(self) -> list[Result]:
        """One per item, in order; cancelled, it ends all that are begun. Raises `QueueFull` where so many items more
        may not be in progress."""
        with self._preparation.inputs.hold(self._origin.tenant, len(self._items)):
            try:
                async with asyncio.TaskGroup() as group:
                    for numbers in _slices(self._items):
                        await self._begin(numbers, group)
            finally:
                # Of those that were cancelled.
                self._room.give(self._num_begun)
        return [result for result in self._results if result is not None]

    async def _begin(self, numbers: range, group: asyncio.TaskGroup) -> None:
        await self._room.take(len(numbers))
        self._num_begun += len(numbers)
        tenant = self._origin.tenant
        cost = sum(_COST_OF_AN_ITEM + num_chars(self._items[number].input) for number in numbers)
        async with self._preparation.slices.turn(tenant, cost):
            failed = [number for number in numbers if not self._begin_item(number, group)]
            # One slice in a turn of the event loop, of all mixed requests together: whoever else waits for it is next.
            await asyncio.sleep(0)
        if failed:
            await self._charge(failed)

    def _begin_item(self, number: int, group: asyncio.TaskGroup) -> bool:
        item = self._items[number]
        try:
            target = self._service.predictor.aim(self._origin, item.task)
        except PeltierError as error:
            self._end(number, error.body())
            return False
        group.create_task(self._answer(number, target))
        return True

    async def _charge(self, failed: Sequence[int]) -> None:
        try:
            await self._preparation.turnstile.charge(self._origin.tenant, len(failed))
        except QuotaExceeded as error:
            for number in failed:
                self._results[number] = error.body()

    async def _answer(self, number: int, target: Target) -> None:
        started, status = time.monotonic(), ClientGone.status
        item = self._items[number]
        try:
            prediction = await self._service.predictor.predict_item(target, item, self._arrived_at, self.budget)
            status = HTTPStatus.OK
            self._end(number, prediction.response)
        except PeltierError as error:
            status = error.status
            self._end(number, error.body())
        except Exception:
            logger.exception("one part of a mixed request failed, for task %s", item.task)
            status = ServerError.status
            self._end(number, ServerError("the server failed; its log has the reason").body())
        finally:
            self._service.metrics.versions.observe(target.entry.labels, status, time.monotonic() - started)

    def _end(self, number: int, result: Result) -> None:
        self._results[number] = result
        self._num_begun -= 1
        self._room.give()


def _slices(items: Sequence[MixedItem]) -> Iterator[range]:
    """Runs of neighbouring items that are begun at a time."""
    start, chars = 0, 0
    for number, item in enumerate(items):
        size = num_chars(item.input)
        if number - start == _SLICE_ITEMS or (number > start and chars + size > _SLICE_CHARS):
            yield range(start, number)
            start, chars = number, 0
        chars += size
    yield range(start, len(items))
