"""The listening socket, which accepts connections."""

import asyncio
import errno
import logging
import socket
from asyncio import Protocol, TimerHandle
from collections.abc import Callable
from typing import Any

from peltier_server.http.connection import has_closed
from peltier_server.settings import SettingsError

logger = logging.getLogger(__name__)

# Connections that one turn of the event loop accepts. uvloop alone accepts one a turn. On a busy loop that is less than
# a hundred a second, and a new connection waits behind all earlier ones, even those that are closed again.
_AT_ONCE = 64
_BACKLOG = 2048
_RETRY_SECONDS = 1.0
_OUTAGE = {"outage": "open files"}
_EXHAUSTED = {errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM}


class Listener:
    """Accepts connections while it is open, and gives each one to a new protocol. It closes a connection at once if
    its caller has already disconnected. When the process or the system is out of resources, it waits for a second.
    """

    def __init__(self, listening: socket.socket, create_protocol: Callable[[], Protocol]) -> None:
        self._socket = listening
        self._create_protocol = create_protocol
        self._loop = asyncio.get_running_loop()
        self._beginning = set[asyncio.Task[Any]]()
        self._retry: TimerHandle | None = None
        listening.setblocking(False)
        self._listen()

    def close(self) -> None:
        """Stops accepting. Open connections stay open."""
        self._loop.remove_reader(self._socket)
        if self._retry is not None:
            self._retry.cancel()

    async def wait_closed(self) -> None:
        """Returns when every accepted connection has its protocol."""
        if self._beginning:
            await asyncio.wait(self._beginning)

    def _listen(self) -> None:
        self._retry = None
        self._loop.add_reader(self._socket, self._accept)

    def _accept(self) -> None:
        for _ in range(_AT_ONCE):
            try:
                connection, _address = self._socket.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                self._pause(error)
                return
            if has_closed(connection):
                connection.close()
            else:
                self._begin(connection)

    def _begin(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        beginning = self._loop.create_task(self._loop.connect_accepted_socket(self._create_protocol, connection))
        self._beginning.add(beginning)
        beginning.add_done_callback(self._end)

    def _end(self, beginning: "asyncio.Task[Any]") -> None:
        self._beginning.discard(beginning)
        if not beginning.cancelled() and (error := beginning.exception()) is not None:
            logger.warning("an accepted connection could not be used: %s", error)

    def _pause(self, error: OSError) -> None:
        # Any other error concerns one connection, which its caller has closed.
        if error.errno in _EXHAUSTED:
            logger.error("no connection can be accepted for %g s: %s", _RETRY_SECONDS, error.strerror, extra=_OUTAGE)
            self._loop.remove_reader(self._socket)
            self._retry = self._loop.call_later(_RETRY_SECONDS, self._listen)


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 chooses a free one. Raises `SettingsError` if the address cannot be used."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        return socket.create_server(address[:2], family=family, backlog=_BACKLOG)
    except OSError as error:
        # The standard library appends the address to its message, but the message below already names it.
        reason = str(error.strerror or error).partition(" (")[0]
        raise SettingsError(f"cannot listen on {host}:{port}: {reason}") from None


def url_of(host: str, listener: socket.socket) -> str:
    """The URL at which `listener` serves HTTP on this host."""
    return f"http://{f'[{host}]' if ':' in host else host}:{listener.getsockname()[1]}"
