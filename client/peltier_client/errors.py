"""Every error of the protocol, and four that only clients raise.

PeltierError
  x BadRequest            400 bad_request
  x Unauthorized          401 unauthorized
  x Forbidden             403 forbidden
  x NotFound              404 not_found
    - AdapterNotFound     404 adapter_not_found
    - VersionNotFound     404 version_not_found
    - TrainingNotFound    404 training_not_found
    - FileNotFound        404 file_not_found
    - AnswerNotFound      404 answer_not_found
    - BatchNotFound       404 batch_not_found
  x MethodNotAllowed      405 method_not_allowed
  x TooSlow               408 too_slow
  x Conflict              409 conflict
  x TooLarge              413 too_large
  x InvalidInput          422 invalid_input
    - ArtifactRefused     422 artifact_refused
  x InferenceFailed       424 inference_failed
  x QuotaExceeded         429 quota_exceeded
  x ServerError           500 internal_error
  x Unavailable           503 unavailable
    - QueueFull           503 queue_full
    - NotReady            503 not_ready
    - Draining            503 draining
  x DeadlinePassed        504 deadline_passed
  x StorageFull           507 storage_full
  x ConnectionFailed      no answer: nothing listens, the host is unknown, the connection broke
    - TimedOut            no answer in time
  x UnexpectedAnswer      an answer that is not Peltier's: a proxy's page, another service
  x TrainingFailed        a training that was waited for has failed or was cancelled
"""

from collections.abc import Iterator, Sequence

from pydantic import BaseModel, Field


class ErrorDetail(BaseModel):
    """A stable code, one sentence, and every reason if there are several."""

    code: str
    message: str
    details: list[str] = Field(default_factory=list)


class ErrorBody(BaseModel):
    """The body of every error on the native routes."""

    error: ErrorDetail


class PeltierError(Exception):
    """The base of all errors. `str(error)` is one sentence and `details` has every reason.

    `code` is stable on the wire. `status` is the HTTP status, 0 without an answer. `retry_after` is in seconds, None if
    the server names no time.
    """

    code: str = "error"
    status: int = 500
    # The command line prints such errors as one line instead of a traceback.
    is_user_error = True

    def __init__(self, message: str, details: Sequence[str] = (), *, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details = list(details)
        self.retry_after = retry_after

    def __reduce__(self) -> tuple[object, ...]:
        # Unpickling in another process would otherwise call the class without its keywords.
        return self.__class__, (self.message, self.details), self.__dict__

    def body(self) -> ErrorBody:
        """The error's body on the wire."""
        return ErrorBody(error=ErrorDetail(code=self.code, message=self.message, details=self.details))


class BadRequest(PeltierError):
    """The request cannot be read: broken JSON, a missing part, a wrong encoding."""

    code = "bad_request"
    status = 400


class Unauthorized(PeltierError):
    """The API key or token is missing, wrong, expired or revoked."""

    code = "unauthorized"
    status = 401


class Forbidden(PeltierError):
    """The API key or token is valid but lacks the required scope."""

    code = "forbidden"
    status = 403


class NotFound(PeltierError):
    """Nothing is at this address."""

    code = "not_found"
    status = 404


class AdapterNotFound(NotFound):
    """No adapter has this name."""

    code = "adapter_not_found"


class VersionNotFound(NotFound):
    """The adapter exists, but has no such version or alias."""

    code = "version_not_found"


class TrainingNotFound(NotFound):
    """No training of the tenant has this id."""

    code = "training_not_found"


class FileNotFound(NotFound):
    """No file of the tenant has this id."""

    code = "file_not_found"


class AnswerNotFound(NotFound):
    """No answer to the tenant is recorded for this request and row."""

    code = "answer_not_found"


class BatchNotFound(NotFound):
    """No batch of the tenant has this id."""

    code = "batch_not_found"


class MethodNotAllowed(PeltierError):
    """The address exists but does not accept this HTTP method."""

    code = "method_not_allowed"
    status = 405


class TooSlow(PeltierError):
    """The request body stalled or came too slowly."""

    code = "too_slow"
    status = 408


class Conflict(PeltierError):
    """The name or version is taken by something else."""

    code = "conflict"
    status = 409


class TooLarge(PeltierError):
    """The body is larger than the server accepts."""

    code = "too_large"
    status = 413


class InvalidInput(PeltierError):
    """The request breaks a rule; `details` names every broken rule."""

    code = "invalid_input"
    status = 422


class ArtifactRefused(InvalidInput):
    """The server cannot serve the uploaded artifact; `details` lists every reason."""

    code = "artifact_refused"


class InferenceFailed(PeltierError):
    """The model failed on this input."""

    code = "inference_failed"
    status = 424


class QuotaExceeded(PeltierError):
    """The tenant has used up a quota."""

    code = "quota_exceeded"
    status = 429


class ServerError(PeltierError):
    """The server failed; the request is valid."""

    code = "internal_error"
    status = 500


class Unavailable(PeltierError):
    """The server cannot accept the request now; retry later."""

    code = "unavailable"
    status = 503


class QueueFull(Unavailable):
    """A queue or a pool of connections, bodies or answers is full."""

    code = "queue_full"


class NotReady(Unavailable):
    """The server is loading, or failed to start."""

    code = "not_ready"


class Draining(Unavailable):
    """The server is stopping and accepts no new requests."""

    code = "draining"


class DeadlinePassed(PeltierError):
    """The answer was not ready before the request's deadline."""

    code = "deadline_passed"
    status = 504


class StorageFull(PeltierError):
    """The storage has no room for the artifact."""

    code = "storage_full"
    status = 507


class ConnectionFailed(PeltierError):
    """The server cannot be reached, or the connection broke before the answer."""

    code = "connection_failed"
    status = 0


class TimedOut(ConnectionFailed):
    """The server did not answer in time."""

    code = "timed_out"


class UnexpectedAnswer(PeltierError):
    """The answer does not follow this protocol; `status` is its HTTP status."""

    code = "unexpected_answer"
    status = 0


class TrainingFailed(PeltierError):
    """A training has failed or was cancelled; the message has its id and the reason."""

    code = "training_failed"
    status = 0


def error_classes(root: type[PeltierError] = PeltierError) -> Iterator[type[PeltierError]]:
    """Every class below `root` with a code of its own, parents before their children."""
    for child in root.__subclasses__():
        if "code" in vars(child):
            yield child
        yield from error_classes(child)


BY_CODE = {cls.code: cls for cls in error_classes()}
# The base class of a status stands for its subclasses if only the status is known.
BY_STATUS = {cls.status: cls for cls in reversed(BY_CODE.values()) if cls.status and PeltierError in cls.__bases__}
