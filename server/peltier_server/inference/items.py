"""Answers the items of one request separately. It starts them in slices, and other work runs between two slices."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any

from peltier_client.protocol import Input

from peltier_server.fairness.preparation import Preparation
from peltier_server.inference.tokenizing import num_chars

# Starting a slice takes about a millisecond: resolving a name takes about ten microseconds, then texts are tokenised.
_SLICE_ITEMS = 16
_SLICE_CHARS = 1024
# The cost of an item without its text, in tokenised characters.
_COST_OF_AN_ITEM = 64

# Starts the answer to the item with this number; returns None if the item is refused at once.
Begin = Callable[[int], Coroutine[Any, Any, None] | None]


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
                    for numbers in _slices(self._inputs):
                        if refused := await self._begin(numbers, begin, group):
                            await charge(refused)
                    self._on_pause()
            except ExceptionGroup as errors:
                raise errors.exceptions[0] from None

    async def _begin(self, numbers: range, begin: Begin, group: asyncio.TaskGroup) -> list[int]:
        cost = sum(_COST_OF_AN_ITEM + num_chars(self._inputs[number]) for number in numbers)
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


def _slices(inputs: Sequence[Input]) -> Iterator[range]:
    """Ranges of neighbouring items that are started together."""
    start, chars = 0, 0
    for number, value in enumerate(inputs):
        size = num_chars(value)
        if number - start == _SLICE_ITEMS or (number > start and chars + size > _SLICE_CHARS):
            yield range(start, number)
            start, chars = number, 0
        chars += size
    yield range(start, len(inputs))
