"""Answers mixed requests. Each item has its own result or its own error."""

import logging
import time
from collections.abc import Coroutine, Sequence
from contextlib import nullcontext
from http import HTTPStatus
from typing import Any

from peltier_client.errors import AdapterNotFound, ErrorBody, PeltierError, QuotaExceeded, ServerError
from peltier_client.protocol import MixedItem, group_prefix

from peltier_server.context import RequestContext
from peltier_server.errors import ClientGone
from peltier_server.fairness.preparation import Preparation
from peltier_server.inference.items import Items
from peltier_server.inference.prediction import Prediction
from peltier_server.inference.prediction_request import ResolvedTask
from peltier_server.inference.predictor import Predictor
from peltier_server.inference.tokenizing import InputReader
from peltier_server.metrics.labels import VersionMetrics

logger = logging.getLogger(__name__)

ItemResult = Prediction | ErrorBody


class MixedAnswer:
    """Computes the results of one mixed request. They share one `budget` of answer bytes. An item with an unknown name
    costs its tenant one token, like a refused input."""

    def __init__(
        self,
        predictor: Predictor,
        metrics: VersionMetrics,
        preparation: Preparation,
        context: RequestContext,
        items: Sequence[MixedItem],
    ) -> None:
        self.budget = predictor.open_answer(context)
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
        try:
            self._results[number] = await self._predictor.predict_item(
                target, item, self._arrived_at, self.budget, self._reader
            )
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
