"""Reads the bodies of routes: bounded in bytes, and large JSON parsed in a thread, by turns between tenants."""

import json
import reprlib
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from peltier_adapters.artifact.header import doubled_name, has_more_tokens
from peltier_client.errors import BadRequest, InvalidInput, PeltierError, TooLarge
from pydantic import BaseModel, ValidationError

from peltier_server.context import BodyLimit, context_of
from peltier_server.errors import RefusedBody, to_wire
from peltier_server.fairness.preparation import Preparation
from peltier_server.http.disconnects import cancel_on_disconnect

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
BodyModel = type[BaseModel] | None
# Builds the dict of a JSON object from its names and values; None accepts any object.
Hook = Callable[[list[tuple[str, Any]]], dict[str, Any]] | None
# The length in bytes of the JSON at the start of a body; None if the whole body is JSON.
JSONLength = Callable[[Request], int | None]

# Much more than any request needs, even with three texts an input and every parameter set.
_TOKENS_PER_INPUT = 64
_MIN_TOKENS = 65_536
# A body has at most ten keys. To report thousands of unknown ones would take as long as a batch.
_MAX_KEYS = 1000
# To describe one mistake takes thirty microseconds, and a longer list helps no reader.
_MAX_MISTAKES = 1000
# The event loop parses smaller bodies itself, in less time than a thread needs to start.
SMALL_BODY_BYTES = 16 * 1024
# To parse a byte takes as long as to tokenise a hundredth of a character.
BYTES_PER_COST = 100
# The keys of a body that hold a list of inputs, and the names of these lists in error messages.
_LISTS = {"inputs": "inputs", "requests": "requests", "tasks": "tasks", "prompt": "prompts", "input": "inputs"}


def _whole_body(_: Request) -> int | None:
    return None


def bounded(handle: Handler, model: BodyModel, hook: Hook = None, json_length: JSONLength = _whole_body) -> Handler:
    """Wraps a route's handler so that its body counts among the bytes in progress until the request is answered.

    Large bodies are parsed and validated in a thread, by turns between tenants. JSON with too many values, inputs or
    mistakes is refused: to describe the mistakes in two megabytes of empty lists takes a gigabyte and several seconds.
    """

    async def answer(request: Request) -> Response:
        preparation: Preparation = request.app.state.preparation
        context = context_of(request.scope)
        with preparation.body_bytes.hold(context.tenant, 0) as held:
            context.body_limit = BodyLimit(preparation.max_body_bytes, held)
            read = partial(read_json, model=model, hook=hook, max_inputs=preparation.max_inputs)
            try:
                return await handle(JSONRequest(request, preparation, read, json_length(request)))
            finally:
                context.body_limit = None

    return answer


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The dict of a JSON object. Raises `InvalidInput` if a name occurs twice: the server could not know which of
    two shares of a version, or of two weights of a tenant, the caller means.
    """
    name = doubled_name(pairs)
    if name is not None:
        raise InvalidInput(f"the request body gives {reprlib.repr(name)} twice")
    return dict(pairs)


class JSONRequest(Request):
    """A request whose JSON, the first `num_bytes` of its body or all of it, is parsed by `read`."""

    def __init__(
        self, request: Request, preparation: Preparation, read: Callable[[bytes], Any], num_bytes: int | None = None
    ) -> None:
        super().__init__(request.scope, request.receive)
        self._num_bytes = num_bytes
        self._whole: bytes | None = None
        self._read = read
        self._preparation = preparation

    async def body(self) -> bytes:
        """The whole body. The framework's own method uses generators, which take longer than the parsing of a small
        body.
        """
        if self._whole is None:
            pieces, more = list[bytes](), True
            while more:
                message = await self.receive()
                pieces.append(message.get("body", b""))
                more = message.get("more_body", False)
            self._whole = b"".join(pieces)
        return self._whole

    async def json(self) -> Any:
        """The body as an instance of its model, which the framework accepts without a further check. Raises
        `RefusedBody`.
        """
        text = (await self.body())[: self._num_bytes]
        try:
            if len(text) <= SMALL_BODY_BYTES:
                return self._read(text)
            tenant = context_of(self.scope).tenant
            work = self._preparation.run(tenant, len(text) // BYTES_PER_COST, partial(self._read, text))
            return await cancel_on_disconnect(self, work)
        except json.JSONDecodeError as error:
            raise RefusedBody(BadRequest(f"the body is not JSON: {error.msg} at character {error.pos}")) from None
        except (ValueError, RecursionError):
            # For example bytes that are not text, too deep nesting, or a number of a million digits.
            raise RefusedBody(BadRequest("the request body cannot be read")) from None
        except PeltierError as error:
            raise RefusedBody(error) from None


def read_json(text: bytes, *, model: BodyModel, hook: Hook, max_inputs: int) -> Any:
    """The parsed body, as an instance of `model` if that is given. Raises `JSONDecodeError` for text that is not
    JSON, `TooLarge` or `InvalidInput` for too many values or inputs, and `InvalidInput` for a failed validation.
    """
    if model is not None and hook is None and len(text) <= SMALL_BODY_BYTES:
        try:
            # A text this short cannot hold too many values, and this parses and validates it in half of the time.
            return model.model_validate_json(text)
        except ValueError:
            pass  # the code below finds the mistake and describes it
    limit = max(_MIN_TOKENS, _TOKENS_PER_INPUT * max_inputs)
    if has_more_tokens(text, limit):
        raise TooLarge(f"the request body holds more than {limit} strings, commas and brackets")
    body = json.loads(text, object_pairs_hook=hook)
    if isinstance(body, dict):
        _check_counts(body, max_inputs)
    if model is None:
        return body
    try:
        return model.model_validate(body)
    except ValidationError as error:
        raise _refusal(error) from None


def _check_counts(body: dict[str, Any], max_inputs: int) -> None:
    if len(body) > _MAX_KEYS:
        raise InvalidInput(f"the request body has {len(body)} keys; at most {_MAX_KEYS} are read")
    for key, what in _LISTS.items():
        value = body.get(key)
        if isinstance(value, list) and len(value) > max_inputs:
            raise InvalidInput(f"the request has {len(value)} {what}; at most {max_inputs} are allowed")


def _refusal(error: ValidationError) -> PeltierError:
    if error.error_count() > _MAX_MISTAKES:
        return InvalidInput(
            f"the request body has {error.error_count()} mistakes; they are named where there are at most "
            f"{_MAX_MISTAKES}"
        )
    problems = error.errors(include_url=False)
    return to_wire(RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in problems]))
