"""Ports for programs that cannot be told to take any free one."""

import socket


class ReservedPort:
    """A free port, or the one of that number, which nobody else reserves and the system gives to nobody who asks for
    any. A server that reuses addresses can listen on it, and again after a restart, until the port is closed."""

    def __init__(self, number: int = 0) -> None:
        self._socket = socket.socket()
        try:
            self._socket.bind(("127.0.0.1", number))
        except OSError:
            self._socket.close()
            raise
        # Only now, so that a port that somebody else has is refused.
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.number: int = self._socket.getsockname()[1]

    def __enter__(self) -> "ReservedPort":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Anybody may get it now."""
        self._socket.close()
