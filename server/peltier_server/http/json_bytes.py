"""A response whose JSON is serialised already."""

from collections.abc import Mapping

from fastapi import Response

JSON = "application/json"


class JSONBytes(Response):
    """The status 200 with `body` and more headers, whose names are in lower case. The framework's own response takes
    7 µs to lower, encode and search the headers of a prediction.
    """

    def __init__(self, body: bytes, headers: Mapping[str, str]) -> None:
        self.body, self.status_code, self.background = body, 200, None
        self.raw_headers = [
            (b"content-length", str(len(body)).encode()),
            (b"content-type", JSON.encode()),
            *((name.encode(), value.encode()) for name, value in headers.items()),
        ]
