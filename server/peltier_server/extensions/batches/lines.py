"""The requests in the file of a batch, one a line, and the lines of its results, in the shape of OpenAI's API."""

from codecs import BOM_UTF8
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from peltier_client.protocol.batches import MAX_CUSTOM_ID_CHARS, BatchError
from pydantic_core import from_json, to_json

from peltier_server.http.app_call import AppAnswer

# Of an invalid file, in its first lines.
_NUM_SHOWN = 20


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
    # Programs of Windows begin a file with this mark.
    start, number = len(BOM_UTF8) if data.startswith(BOM_UTF8) else 0, 0
    while start < len(data):
        end = data.find(b"\n", start)
        end = len(data) if end < 0 else end
        number += 1
        if data[start:end].strip():
            yield number, start, end
        start = end + 1


def _read(line: bytes, endpoint: str) -> tuple[str, bytes]:
    try:
        # Bounds the depth, as the parser of the routes does.
        row = from_json(line)
    except ValueError:
        raise _Refused("invalid_json_line", "it is not JSON, or is nested too deeply") from None
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
    return custom_id, to_json(body)


def _shown(value: Any) -> str:
    return repr(value)[:80]


def result_line(batch_id: str, line: BatchLine, answer: AppAnswer) -> bytes:
    """The line of an answer of the server, whose body is JSON in one line."""
    head = to_json({"id": _result_id(batch_id, line), "custom_id": line.custom_id}).removesuffix(b"}")
    request_id = answer.headers.get("x-request-id", "")
    response = to_json({"status_code": answer.status, "request_id": request_id}).removesuffix(b"}")
    return b'%s,"response":%s,"body":%s},"error":null}\n' % (head, response, answer.body)


def error_lines(batch_id: str, lines: Iterable[BatchLine], code: str, message: str) -> Iterator[bytes]:
    """The lines of requests that are not sent."""
    error = {"code": code, "message": message}
    for line in lines:
        row = {"id": _result_id(batch_id, line), "custom_id": line.custom_id, "response": None, "error": error}
        yield to_json(row) + b"\n"


def _result_id(batch_id: str, line: BatchLine) -> str:
    return f"batch_req_{batch_id.removeprefix('batch_')}_{line.number}"
