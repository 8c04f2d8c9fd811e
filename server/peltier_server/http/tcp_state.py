"""What the kernel knows of a TCP connection before its bytes are read."""

import socket

# tcp_info begins with the state (Linux, net/tcp_states.h); macOS calls it otherwise.
_TCP_INFO = getattr(socket, "TCP_INFO", None)
_ESTABLISHED = 1


def has_closed(connection: socket.socket) -> bool:
    """Whether the other side has closed an accepted connection. What it sent before may still wait to be read, so a
    read says it much later. Where the kernel does not tell, False."""
    if _TCP_INFO is None:
        return False
    try:
        return connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, 1)[0] != _ESTABLISHED
    except OSError:
        return False
