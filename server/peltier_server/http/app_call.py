"""One request of the app in this process, without a socket."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp, Message


@dataclass(frozen=True)
class AppAnswer:
    """A whole answer. The names of `headers` are in lower case."""

    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass
class AppCall:
    """A request. `headers` have lower-case names. `state` is the server's own, which no caller can set."""

    method: str
    path: str
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    state: Mapping[str, Any] = field(default_factory=dict)

    async def send(self, app: ASGIApp) -> AppAnswer:
        """The answer of `app`. If the caller is cancelled, the app learns that it has disconnected, and ends its work
        first."""
        gone, whole = asyncio.Event(), [self.body]
        start: Message = {}
        pieces = list[bytes]()

        async def receive() -> Message:
            if whole:
                return {"type": "http.request", "body": whole.pop(), "more_body": False}
            await gone.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            if message["type"] == "http.response.start":
                start.update(message)
            else:
                pieces.append(message.get("body", b""))

        work = asyncio.create_task(_run(app, self._scope, receive, send))
        try:
            await asyncio.shield(work)
        except asyncio.CancelledError:
            gone.set()
            await asyncio.wait([work])
            raise
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in start["headers"]}
        return AppAnswer(start["status"], headers, b"".join(pieces))

    @property
    def _scope(self) -> dict[str, Any]:
        # A server without keys answers to this machine's own names only, as a protection from pages in browsers, which
        # cannot speak gRPC.
        given = {"host": "localhost", "content-length": str(len(self.body)), **self.headers}
        return {
            "type": "http",
            "asgi": {"version": "3.0", "spec_version": "2.4"},
            "http_version": "2",
            "method": self.method,
            "scheme": "http",
            "path": self.path,
            "raw_path": self.path.encode(),
            "query_string": b"",
            "root_path": "",
            "headers": [(name.encode("latin-1"), value.encode("latin-1")) for name, value in given.items()],
            "client": None,
            "server": None,
            "state": dict(self.state),
        }


async def _run(app: ASGIApp, *arguments: Any) -> None:
    await app(*arguments)
