"""Batches on the wire, in the shape of OpenAI's API."""

from typing import Literal

from peltier_client.protocol.trainings import FileId, Metadata
from peltier_client.protocol.wire import OpenAIPage, RequestModel, ResponseModel

BatchEndpoint = Literal["/v1/embeddings", "/v1/completions", "/v1/rerank", "/v1/predict"]
BatchStatus = Literal[
    "validating", "in_progress", "finalizing", "completed", "failed", "cancelling", "cancelled", "expired"
]
MAX_CUSTOM_ID_CHARS = 512
_ENDED: frozenset[BatchStatus] = frozenset({"completed", "failed", "cancelled", "expired"})


class BatchRequest(RequestModel):
    """A batch to begin. Each line of the file is `{"custom_id", "method": "POST", "url", "body"}`; `url` is the
    `endpoint`."""

    input_file_id: FileId
    endpoint: BatchEndpoint
    completion_window: Literal["24h"] = "24h"
    metadata: Metadata | None = None


class BatchError(ResponseModel):
    """A line of the file that breaks a rule, or why the batch failed."""

    code: str
    message: str
    line: int | None = None
    param: str | None = None


class BatchErrors(ResponseModel):
    """Why a batch failed."""

    object: Literal["list"] = "list"
    data: list[BatchError]


class BatchCounts(ResponseModel):
    """The requests of a batch: in all, with an answer, with an error."""

    total: int
    completed: int
    failed: int


class Batch(ResponseModel):
    """A batch. Times are in seconds since 1970. `output_file_id` has a line for each answer, `error_file_id` for each
    error; a file without lines does not exist."""

    id: str
    object: Literal["batch"] = "batch"
    endpoint: str
    errors: BatchErrors | None = None
    input_file_id: str
    completion_window: str
    status: BatchStatus
    output_file_id: str | None = None
    error_file_id: str | None = None
    created_at: int
    in_progress_at: int | None = None
    expires_at: int
    finalizing_at: int | None = None
    completed_at: int | None = None
    failed_at: int | None = None
    expired_at: int | None = None
    cancelling_at: int | None = None
    cancelled_at: int | None = None
    request_counts: BatchCounts
    metadata: dict[str, str] | None = None

    @property
    def has_ended(self) -> bool:
        """Whether nothing more happens to it."""
        return self.status in _ENDED


class BatchList(OpenAIPage[Batch]):
    """A page of batches, newest first. `last_id` is the `after` of the next page if `has_more` is true."""
