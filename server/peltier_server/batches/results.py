"""The lines of a batch's results, in the shape of OpenAI's API."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from peltier_store.registry import BatchPart
from pydantic_core import to_json

from peltier_server.batches.requests import BatchLine
from peltier_server.http.app_call import AppAnswer

_OK = 200


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
