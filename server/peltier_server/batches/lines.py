"""The requests in the file of a batch, one a line, and the lines of its results, in the shape of OpenAI's API."""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from peltier_client.protocol import BatchError
from peltier_client.protocol.batches import MAX_CUSTOM_ID_CHARS
from peltier_store.registry import BatchPart
from pydantic_core import to_json

from peltier_server.http.app_call import AppAnswer

# Of an invalid file, in its first lines.
_NUM_SHOWN = 20
_OK = 200


class BatchLine(NamedTuple):
    """A request: its number in the file from 0 on, the caller's id, and the body as JSON."""

    number: int
    custom_id: str
    body: bytes


class _Refused(Exception):
    """A line breaks a rule."""

    def __init__(self, code: str, message: str, param: str | None = None) -> None:
        super().__init__(message)
        self.code, self.message, self.param = code, message, param


class BatchRequests:
    """The valid requests of a file, in their order, without its empty lines. Bodies are parsed when they are needed."""

    def __init__(self, data: bytes, endpoint: str) -> None:
        """Reads the whole file. `errors` has the first lines that break a rule, and then nothing may be computed."""
        self._data = data
        self._endpoint = endpoint
        self.errors = list[BatchError]()
        self._spans = list(_spans(data))
        seen = dict[str, int]()
        for number, (line, _, _) in enumerate(self._spans):
            try:
                custom_id = self[number].custom_id
                if custom_id in seen:
                    first = self._spans[seen[custom_id]][0]
                    raise _Refused("duplicate_custom_id", f"custom_id is that of line {first} too", "custom_id")
                seen[custom_id] = number
            except _Refused as refused:
                message = f"line {line}: {refused.message}"
                self.errors.append(BatchError(code=refused.code, line=line, message=message, param=refused.param))
                if len(self.errors) == _NUM_SHOWN:
                    return

    def __len__(self) -> int:
        return len(self._spans)

    def __getitem__(self, number: int) -> BatchLine:
        _, start, end = self._spans[number]
        custom_id, body = _read(self._data[start:end], self._endpoint)
        return BatchLine(number, custom_id, body)

    def lines(self, start: int, end: int | None = None) -> Iterator[BatchLine]:
        """The requests from `start` up to `end`, or up to the last one."""
        return (self[number] for number in range(len(self))[start:end])


def _spans(data: bytes) -> Iterator[tuple[int, int, int]]:
    """The number from 1 on, the start and the end of each line that is not empty."""
    start, number = 0, 0
    while start < len(data):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        number += 1
        if data[start:end].strip():
            yield number, start, end
        start = end + 1


def _read(line: bytes, endpoint: str) -> tuple[str, bytes]:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError):
        raise _Refused("invalid_json_line", "it is not JSON") from None
    if not isinstance(row, dict):
        raise _Refused("invalid_json_line", "it must be a JSON object")
    custom_id, body = row.get("custom_id"), row.get("body")
    if not isinstance(custom_id, str) or not 1 <= len(custom_id) <= MAX_CUSTOM_ID_CHARS:
        rule = f"custom_id must be a text of 1 to {MAX_CUSTOM_ID_CHARS} characters"
        raise _Refused("invalid_custom_id", rule, "custom_id")
    if row.get("method") != "POST":
        raise _Refused("invalid_method", f"method is {_shown(row.get('method'))}; it must be 'POST'", "method")
    if row.get("url") != endpoint:
        rule = f"url is {_shown(row.get('url'))}; it must be the endpoint of the batch, {endpoint!r}"
        raise _Refused("invalid_url", rule, "url")
    if not isinstance(body, dict):
        raise _Refused("invalid_request", "body must be a JSON object", "body")
    if body.get("stream"):
        raise _Refused("invalid_request", "body.stream is set; the answers of a batch are in a file", "body")
    return custom_id, json.dumps(body).encode()


def _shown(value: Any) -> str:
    return repr(value)[:80]


@dataclass
class BatchResults:
    """Answers, and errors. Each is a line of JSON with its end."""

    batch_id: str
    completed: list[bytes] = field(default_factory=list)
    failed: list[bytes] = field(default_factory=list)

    def add(self, line: BatchLine, answer: AppAnswer) -> None:
        """An answer of the server. Its body is JSON in one line."""
        head = to_json({"id": self._id(line), "custom_id": line.custom_id}).removesuffix(b"}")
        request_id = answer.headers.get("x-request-id", "")
        response = to_json({"status_code": answer.status, "request_id": request_id}).removesuffix(b"}")
        text = b'%s,"response":%s,"body":%s},"error":null}\n' % (head, response, answer.body)
        (self.completed if answer.status == _OK else self.failed).append(text)

    def add_errors(self, lines: Iterable[BatchLine], code: str, message: str) -> None:
        """Requests that are not sent. There may be thousands, which are parsed here: not on the event loop."""
        error = {"code": code, "message": message}
        for line in lines:
            row = {"id": self._id(line), "custom_id": line.custom_id, "response": None, "error": error}
            self.failed.append(to_json(row) + b"\n")

    def add_part(self, part: BatchPart, data: bytes) -> None:
        """The results of an earlier part."""
        lines = data.splitlines(keepends=True)
        self.completed += lines[: part.num_completed]
        self.failed += lines[part.num_completed :]

    def part(self) -> bytes:
        """All lines, the answers before the errors."""
        return b"".join(self.completed + self.failed)

    def _id(self, line: BatchLine) -> str:
        return f"batch_req_{self.batch_id.removeprefix('batch_')}_{line.number}"
