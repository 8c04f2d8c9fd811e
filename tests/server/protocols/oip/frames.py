"""Frames of HTTP/2 of a caller who takes no answer."""

import struct

_METHOD, _SCHEME = b"\x83", b"\x86"  # POST and http, of the static table

# The setting by which a server bounds the calls of a connection.
MAX_CONCURRENT_STREAMS = b"\0\3"


def _frame(kind: int, flags: int, stream: int, payload: bytes) -> bytes:
    return struct.pack("!I", len(payload))[1:] + struct.pack("!BBI", kind, flags, stream) + payload


def _text(text: str) -> bytes:
    assert len(text) < 127
    return bytes([len(text)]) + text.encode()


def beginning() -> bytes:
    """The beginning of a connection whose streams may send nothing: their initial window is 0."""
    return b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + _frame(4, 0, 0, struct.pack("!HI", 4, 0))


def call(number: int, method: str, message: bytes = b"", **metadata: str) -> bytes:
    """The call with this number on its connection, complete."""
    names = {"te": "trailers", "content-type": "application/grpc"} | metadata
    head = _METHOD + _SCHEME + b"\x04" + _text(f"/inference.GRPCInferenceService/{method}") + b"\x01" + _text("a")
    head += b"".join(b"\x00" + _text(name) + _text(text) for name, text in names.items())
    stream = 2 * number + 1
    return _frame(1, 4, stream, head) + _frame(0, 1, stream, struct.pack("!BI", 0, len(message)) + message)
