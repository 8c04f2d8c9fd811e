"""Errors in the format of OpenAI's API."""

import re
from collections.abc import Collection
from functools import partial
from typing import Literal

from peltier_client.errors import PeltierError
from peltier_client.protocol.wire import ResponseModel
from pydantic import BaseModel

from peltier_server.errors import ErrorShape
from peltier_server.protocols.openai.embeddings import EmbeddingRequest
from peltier_server.protocols.openai.messages import CompletionRequest

# The fields of OpenAI's requests by the names of the parameters that they become.
_FIELDS = {"precision": "encoding_format"}
# OpenAI's codes where its clients read them. For other errors they read only the status, so the code is Peltier's own.
_CODES = {"adapter_not_found": "model_not_found", "version_not_found": "model_not_found"}


class OpenAIErrorDetail(ResponseModel):
    """What went wrong, and where it is known the parameter."""

    message: str
    type: Literal["invalid_request_error", "server_error"]
    param: str | None = None
    code: str


class OpenAIErrorBody(ResponseModel):
    """The body of every answer that is not a success."""

    error: OpenAIErrorDetail


def openai_errors(paths: tuple[str, ...], folders: tuple[str, ...], *bodies: type[BaseModel]) -> ErrorShape:
    """The form of errors at `paths` and below `folders`, where `bodies` are sent. OpenAI's API uses 400 where Peltier's
    own uses 422."""
    all_bodies: tuple[type[BaseModel], ...] = (CompletionRequest, EmbeddingRequest, *bodies)
    params = frozenset(name for body in all_bodies for name in body.model_fields)
    return ErrorShape(OpenAIErrorBody, partial(_body, params), paths, folders, {422: 400})


def _body(params: Collection[str], error: PeltierError) -> OpenAIErrorBody:
    """`param` is the parameter at the start of the message, or `model` for unknown models."""
    own = _subject(error.message)
    asked = _FIELDS.get(own, own)
    subject = "model" if error.code in _CODES else asked
    kind: Literal["invalid_request_error", "server_error"]
    kind = "server_error" if error.status >= 500 or error.status == 424 else "invalid_request_error"
    detail = OpenAIErrorDetail(
        message=asked + error.message.removeprefix(own),
        type=kind,
        param=subject if subject in params else None,
        code=_CODES.get(error.code, error.code),
    )
    return OpenAIErrorBody(error=detail)


def _subject(message: str) -> str:
    """Its first word, unless that counts inputs."""
    found = re.match(r"(\w+)(?! \d+:)[ .:]", message)
    return found[1] if found else ""


OPENAI_ERRORS = openai_errors(("/v1/completions", "/v1/embeddings", "/v1/models"), ("/v1/models/",))
