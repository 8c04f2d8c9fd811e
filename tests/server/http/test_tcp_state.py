"""The server knows that a caller has closed before it reads its bytes."""

import socket
import struct
from collections.abc import Iterator

import pytest
from peltier_server.http.tcp_state import has_closed


@pytest.fixture
def ends() -> Iterator[tuple[socket.socket, socket.socket]]:
    """A caller, and the connection that the server has with it."""
    with socket.create_server(("127.0.0.1", 0)) as listening, socket.create_connection(listening.getsockname()) as near:
        far, _ = listening.accept()
        with far:
            yield near, far


def test_one_that_waits_for_an_answer_has_not(ends: tuple[socket.socket, socket.socket]) -> None:
    caller, connection = ends
    caller.sendall(b"a request")
    assert not has_closed(connection)


def test_one_that_has_sent_and_left_has(ends: tuple[socket.socket, socket.socket]) -> None:
    caller, connection = ends
    caller.sendall(b"a request")
    caller.close()
    assert has_closed(connection)
    assert connection.recv(100) == b"a request"


def test_one_that_broke_off_has(ends: tuple[socket.socket, socket.socket]) -> None:
    caller, connection = ends
    caller.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    caller.close()
    assert has_closed(connection)


def test_where_the_kernel_does_not_tell_it_is_open() -> None:
    one, other = socket.socketpair()
    with one:
        other.close()
        assert not has_closed(one)
