"""The events of trainings for open streams: earlier ones first, then new ones as they are recorded."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager

from peltier_client.errors import QueueFull
from peltier_store.registry.extensions.queue_records import FINAL_STATES, StoredEvent
from peltier_store.registry.extensions.registry import Registry
from peltier_store.registry.records import Position

from peltier_server import retry_hints

MAX_STREAMS = 64
MAX_STREAMS_OF_ONE = 16
# A stream looks this often whether the registry has changed, and only then reads it.
_TICK_SECONDS = 1.0
# Proxies close connections that are silent for a minute.
_TICKS_OF_SILENCE = 15
_PAGE = 500


class EventFeed:
    """The streams of this replica. `position` is that of the newest change of the registry that the replica knows; only
    one task of the replica polls for it, however many streams are open. Belongs to the event loop."""

    def __init__(self, registry: Registry, position: Callable[[], Position | None]) -> None:
        self._registry = registry
        self._position = position
        self._streams = Counter[str]()

    @property
    def num_streams(self) -> int:
        """The streams that are open."""
        return self._streams.total()

    @contextmanager
    def place(self, tenant: str) -> Iterator[None]:
        """Holds the place of one stream. Raises `QueueFull` if there is none."""
        if self.num_streams >= MAX_STREAMS or self._streams[tenant] >= MAX_STREAMS_OF_ONE:
            raise QueueFull(
                f"{MAX_STREAMS} streams of events, or {MAX_STREAMS_OF_ONE} of tenant {tenant!r}, are open; ask for the "
                "training itself",
                retry_after=retry_hints.SOON,
            )
        self._streams[tenant] += 1
        try:
            yield
        finally:
            self._streams[tenant] -= 1
            if not self._streams[tenant]:
                del self._streams[tenant]

    async def events(
        self, tenant: str, training_id: str, after: int, is_leaving: Callable[[], bool]
    ) -> AsyncIterator[StoredEvent | None]:
        """The events after the one with the id `after`, until the training has ended or the server `is_leaving`. None
        stands for a time in which nothing happened. Raises TrainingUnknown."""
        trainings = self._registry.trainings
        state = await trainings.state(tenant, training_id)
        while not is_leaving():
            position = self._position()
            page = await trainings.events(tenant, training_id, after=after, limit=_PAGE)
            for event in page:
                yield event
                after, state = event.id, event.data.get("state", state) if event.kind == "state" else state
            if page:
                continue
            if state in FINAL_STATES:
                return
            if not await self._has_changed(position, is_leaving):
                yield None

    async def _has_changed(self, position: Position | None, is_leaving: Callable[[], bool]) -> bool:
        for _ in range(_TICKS_OF_SILENCE):
            await asyncio.sleep(_TICK_SECONDS)
            if self._position() != position or is_leaving():
                return True
        return False
