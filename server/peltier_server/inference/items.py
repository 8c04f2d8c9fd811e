"""Answers the items of one request separately, such as those of a mixed request. They start in slices, and other work
runs between two slices."""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import nullcontext
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from peltier_client.errors import AdapterNotFound, ErrorBody, PeltierError, QuotaExceeded, ServerError
from peltier_client.protocol.names import group_prefix
from peltier_client.protocol.predict import Input, MixedItem

from peltier_server.context import RequestContext
from peltier_server.errors import ClientGone
from peltier_server.fairness.preparation import Preparation
from peltier_server.inference.prediction import Prediction
from peltier_server.inference.prediction_request import PredictionRequest, ResolvedTask
from peltier_server.inference.tokenizing import InputReader, num_chars, split_costs
from peltier_server.metrics.series import VersionMetrics

if TYPE_CHECKING:
    from peltier_server.inference.predictor import Predictor

# Starting a slice takes about a millisecond: resolving a name takes about ten microseconds, then texts are tokenised.
_SLICE_ITEMS = 16
_SLICE_CHARS = 1024
# The cost of an item without its text, in tokenised characters.
_COST_OF_AN_ITEM = 64

# Starts the answer to the item with this number; returns None if the item is refused at once.
Begin = Callable[[int], Coroutine[Any, Any, None] | None]

logger = logging.getLogger(__name__)

ItemResult = Prediction | ErrorBody


async def _no_charge(_: Sequence[int]) -> None:
    pass


def _no_pause() -> None:
    pass


class Items:
    """The items of one request of `tenant`, one per input. Tenants take turns to start a slice. Each tenant has at most
    `MAX_ITEMS_BEGUN` started items in progress, over all its requests.

    `on_pause` is called when no further item starts at once: all have started, or the next ones wait until items in
    progress end. It may be called several times.
    """

    def __init__(
        self,
        preparation: Preparation,
        tenant: str,
        inputs: Sequence[Input],
        on_pause: Callable[[], None] = _no_pause,
    ) -> None:
        self._preparation = preparation
        self._tenant = tenant
        self._inputs = inputs
        self._on_pause = on_pause
        self._room = preparation.room_for_items(tenant)

    async def answer(self, begin: Begin, charge: Callable[[Sequence[int]], Awaitable[None]] = _no_charge) -> None:
        """Returns when all items are answered. Calls `charge` with the numbers of refused items. If this call is
        cancelled or an item raises, all started items are cancelled; the first error of an item is raised. Raises
        `QueueFull` if the limit of inputs in progress does not allow so many more."""
        with self._preparation.inputs.hold(self._tenant, len(self._inputs)):
            try:
                async with asyncio.TaskGroup() as group:
                    sizes = list(map(num_chars, self._inputs))
                    for numbers, chars in split_costs(sizes, _SLICE_CHARS, _SLICE_ITEMS):
                        cost = len(numbers) * _COST_OF_AN_ITEM + chars
                        if refused := await self._begin(numbers, cost, begin, group):
                            await charge(refused)
                    self._on_pause()
            except ExceptionGroup as errors:
                raise errors.exceptions[0] from None

    async def _begin(self, numbers: range, cost: int, begin: Begin, group: asyncio.TaskGroup) -> list[int]:
        refused: list[int] = []
        await self._room.take(len(numbers), self._on_pause)
        num_left = len(numbers)
        try:
            async with self._preparation.slices.turn(self._tenant, cost):
                for number in numbers:
                    work = begin(number)
                    if work is None:
                        refused.append(number)
                        continue
                    # The callback is also called if the task is cancelled before it starts.
                    group.create_task(work).add_done_callback(self._give_place)
                    num_left -= 1
                # One iteration of the event loop starts one slice of all requests, so other callbacks run in between.
                await asyncio.sleep(0)
        finally:
            self._room.give(num_left)
        return refused

    def _give_place(self, _: asyncio.Task[None]) -> None:
        self._room.give()


class MixedAnswer:
    """Computes the results of one mixed request. They share one budget of answer bytes. An item with an unknown name
    costs its tenant one token, like a refused input."""

    def __init__(
        self,
        predictor: "Predictor",
        metrics: VersionMetrics,
        preparation: Preparation,
        context: RequestContext,
        items: Sequence[MixedItem],
    ) -> None:
        self._budget = predictor.open_answer(context)
        self._predictor = predictor
        self._metrics = metrics
        self._preparation = preparation
        self._context = context
        self._items = items
        self._results: list[ItemResult | None] = [None] * len(items)
        self._arrived_at = time.monotonic()
        self._reader = InputReader(preparation, context.tenant) if _have_one_input(items) else None

    async def results(self) -> list[ItemResult]:
        """One result per item, in order. If cancelled, it cancels all started items. Raises `QueueFull` if the limit of
        inputs in progress does not allow so many more."""
        inputs = [item.input for item in self._items]
        if self._reader is not None:
            inputs[1:] = [""] * (len(inputs) - 1)  # only the first item reads the input
        items = Items(self._preparation, self._context.tenant, inputs, self._go_on)
        with self._reader or nullcontext():
            await items.answer(self._begin, self._charge)
        return [result for result in self._results if result is not None]

    def _go_on(self) -> None:
        if self._reader is not None:
            self._reader.go_on()

    def _begin(self, number: int) -> Coroutine[Any, Any, None] | None:
        task = self._items[number].task
        try:
            if group_prefix(task) is not None:
                raise AdapterNotFound(f"group {task!r} has no adapters: no name begins with {group_prefix(task)!r}")
            target = self._predictor.resolve(self._context, task)
        except PeltierError as error:
            self._results[number] = error.body()
            return None
        return self._answer(number, target)

    async def _charge(self, failed: Sequence[int]) -> None:
        try:
            await self._preparation.enforcer.charge(self._context.tenant, len(failed))
        except QuotaExceeded as error:
            for number in failed:
                self._results[number] = error.body()

    async def _answer(self, number: int, target: ResolvedTask) -> None:
        started, status = time.monotonic(), ClientGone.status
        item = self._items[number]
        request = PredictionRequest(
            target, (item.input,), item.parameters, self._budget, self._arrived_at,
            reader=self._reader, is_counted=True, first_row=number,
        )  # fmt: skip
        try:
            self._results[number] = await self._predictor.answer(request)
            status = HTTPStatus.OK
        except PeltierError as error:
            status = error.status
            self._results[number] = error.body()
        except Exception:
            logger.exception("one part of a mixed request failed, for task %s", item.task)
            status = ServerError.status
            self._results[number] = ServerError("the server failed; its log has the reason").body()
        finally:
            self._metrics.observe(target.entry.labels, status, time.monotonic() - started)


def _have_one_input(items: Sequence[MixedItem]) -> bool:
    """Whether all items have the same input and parameters, and not only equal ones, as the tasks of one input do."""
    return len(items) > 1 and len({(id(item.input), id(item.parameters)) for item in items}) == 1
