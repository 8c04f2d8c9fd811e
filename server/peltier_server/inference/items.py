"""The items of one request, each answered by itself: begun in slices between which others have the event loop."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Sequence
from typing import Any

from peltier_client.protocol import Input

from peltier_server.fairness.preparation import Preparation
from peltier_server.inference.tokenizing import num_chars

# To begin a slice takes about a millisecond: a name is resolved in some ten microseconds, and a text is tokenised.
_SLICE_ITEMS = 16
_SLICE_CHARS = 1024
# What an item costs besides its text, in characters tokenised.
_COST_OF_AN_ITEM = 64

# The answer to an item, None where it is refused at once.
Begin = Callable[[int], Coroutine[Any, Any, None] | None]


async def _no_charge(_: Sequence[int]) -> None:
    pass


class Items:
    """Those of one request of `tenant`, by their inputs. Tenants take turns at beginning a slice, and each has at most
    `MAX_ITEMS_BEGUN` in progress, of all its requests together."""

    def __init__(self, preparation: Preparation, tenant: str, inputs: Sequence[Input]) -> None:
        self._preparation = preparation
        self._tenant = tenant
        self._inputs = inputs
        self._room = preparation.room_for_items(tenant)

    async def answer(self, begin: Begin, charge: Callable[[Sequence[int]], Awaitable[None]] = _no_charge) -> None:
        """Returns when all are answered; `charge` has the numbers of those that were refused. Cancelled, it ends all
        that are begun, and so does the first that raises, which is raised here. Raises `QueueFull` where so many more
        inputs may not be in progress."""
        with self._preparation.inputs.hold(self._tenant, len(self._inputs)):
            try:
                async with asyncio.TaskGroup() as group:
                    for numbers in _slices(self._inputs):
                        if refused := await self._begin(numbers, begin, group):
                            await charge(refused)
            except ExceptionGroup as errors:
                raise errors.exceptions[0] from None

    async def _begin(self, numbers: range, begin: Begin, group: asyncio.TaskGroup) -> list[int]:
        cost = sum(_COST_OF_AN_ITEM + num_chars(self._inputs[number]) for number in numbers)
        refused: list[int] = []
        await self._room.take(len(numbers))
        num_left = len(numbers)
        try:
            async with self._preparation.slices.turn(self._tenant, cost):
                for number in numbers:
                    work = begin(number)
                    if work is None:
                        refused.append(number)
                        continue
                    # Called even if it is cancelled before it begins.
                    group.create_task(work).add_done_callback(self._give_place)
                    num_left -= 1
                # One slice in a turn of the event loop, of all requests together: whoever else waits for it is next.
                await asyncio.sleep(0)
        finally:
            self._room.give(num_left)
        return refused

    def _give_place(self, _: asyncio.Task[None]) -> None:
        self._room.give()


def _slices(inputs: Sequence[Input]) -> Iterator[range]:
    """Runs of neighbouring items that are begun at a time."""
    start, chars = 0, 0
    for number, value in enumerate(inputs):
        size = num_chars(value)
        if number - start == _SLICE_ITEMS or (number > start and chars + size > _SLICE_CHARS):
            yield range(start, number)
            start, chars = number, 0
        chars += size
    yield range(start, len(inputs))
