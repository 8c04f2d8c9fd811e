"""Server-sent events: answers that are sent in parts over one connection."""

import logging
from collections.abc import AsyncIterator, Callable, Mapping

from fastapi.sse import format_sse_event
from peltier_client.errors import PeltierError
from pydantic import BaseModel
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from peltier_server.errors import to_wire

logger = logging.getLogger(__name__)

MEDIA_TYPE = "text/event-stream"
DONE = format_sse_event(data_str="[DONE]")
# A comment, which clients ignore and proxies count as traffic.
HEARTBEAT = format_sse_event(comment="nothing new")
# These headers tell proxies not to hold events back.
_HEADERS = {"cache-control": "no-cache", "x-accel-buffering": "no"}


def event(body: BaseModel | bytes, name: str | None = None, number: int | None = None) -> bytes:
    """`body`, which is a model or its JSON, as the bytes of one event with this name and id."""
    text = body.decode() if isinstance(body, bytes) else body.model_dump_json()
    return format_sse_event(data_str=text, event=name, id=None if number is None else str(number))


class EventResponse(StreamingResponse):
    """Sends `events`, and calls `close` when all are sent or when the caller disconnects."""

    media_type = MEDIA_TYPE

    def __init__(self, events: AsyncIterator[bytes], headers: Mapping[str, str], close: Callable[[], None]) -> None:
        super().__init__(events, headers={**_HEADERS, **headers})
        self._close = close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Sends the answer through ASGI."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            self._close()


async def until_error(events: AsyncIterator[bytes], as_event: Callable[[PeltierError], bytes]) -> AsyncIterator[bytes]:
    """Yields `events`. If an error ends them early, yields the error as the last event."""
    try:
        async for one in events:
            yield one
    except Exception as error:
        wire = to_wire(error)
        if wire is not error:
            logger.exception("a streamed answer failed")
        yield as_event(wire)
