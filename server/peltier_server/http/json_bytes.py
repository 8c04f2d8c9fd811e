"""A response whose JSON is serialised already."""

from collections.abc import Iterable

from fastapi import Response

JSON = "application/json"
RawHeaders = Iterable[tuple[bytes, bytes]]


class JSONBytes(Response):
    """The status 200 with `body`. The framework's own response takes 7 µs to lower, encode and search the headers of a
    prediction; here they are in their final form.
    """

    def __init__(self, body: bytes, headers: RawHeaders = ()) -> None:
        self.body, self.status_code, self.background = body, 200, None
        self.raw_headers = [
            (b"content-length", str(len(body)).encode()),
            (b"content-type", JSON.encode()),
            *headers,
        ]
