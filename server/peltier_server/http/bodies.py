"""How a route's body is read: bounded before it is read, and JSON parsed by turns where it is large."""

import json
import reprlib
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from peltier_adapters.artifact.json_tokens import doubled_name, has_more_tokens
from peltier_client.errors import BadRequest, InvalidInput, PeltierError, TooLarge
from pydantic import BaseModel, ValidationError
from starlette.types import Message, Receive

from peltier_server.context import context_of
from peltier_server.errors import ClientGone, RefusedBody, to_wire
from peltier_server.fairness.preparation import Preparation
from peltier_server.fairness.shared_bound import Held
from peltier_server.http.dependencies import cancel_on_disconnect

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
Model = type[BaseModel] | None
# What becomes of the names and values of a JSON object; None is any object of them.
Hook = Callable[[list[tuple[str, Any]]], dict[str, Any]] | None

# Far more than the most inputs of three texts, each with every parameter, need.
_TOKENS_PER_INPUT = 64
_MIN_TOKENS = 65_536
# A body has ten at most; to complain of thousands takes as long as a batch.
_MAX_KEYS = 1000
# To name a mistake takes thirty microseconds, and nobody reads so many.
_MAX_MISTAKES = 1000
# Smaller bodies are parsed at once, in less time than a thread needs to begin.
_BYTES_ON_THE_LOOP = 16 * 1024
# A byte takes as long to parse as a hundredth of a character to tokenise.
_BYTES_PER_COST = 100
# Where a body has one input a place.
_LISTS = {"inputs": "inputs", "requests": "requests", "prompt": "prompts"}


def bounded(handle: Handler, model: Model, hook: Hook = None) -> Handler:
    """A route's handler whose body counts among the bytes in progress until the request is answered.

    Large ones are parsed and validated in a thread, by turns between tenants. JSON of very many values, inputs or
    mistakes is refused: to complain of two megabytes of empty lists takes a gigabyte and seconds.
    """

    async def answer(request: Request) -> Response:
        preparation: Preparation = request.app.state.preparation
        with preparation.body_bytes.hold(context_of(request.scope).tenant, 0) as held:
            read = partial(read_json, model=model, hook=hook, max_inputs=preparation.max_inputs)
            return await handle(_JSONRequest(request, read, preparation, held))

    return answer


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuses an object that gives a name twice: of two shares of a version, or two weights of a tenant, nobody could
    say which was meant."""
    name = doubled_name(pairs)
    if name is not None:
        raise InvalidInput(f"the request body gives {reprlib.repr(name)} twice")
    return dict(pairs)


class LimitedRequest(Request):
    """A request of whose body at most `max_bytes` are read; a longer one is refused, before it comes where its length
    is known. What has come counts in `held`."""

    def __init__(self, request: Request, max_bytes: int, held: Held | None = None) -> None:
        # Not a method of this object, which would refer to itself and stay until the garbage collector runs.
        self._incoming = _Body(request.receive, _content_length(request), max_bytes, held)
        super().__init__(request.scope, self._incoming.receive, request._send)


class _Body:
    def __init__(self, receive: Receive, claimed_bytes: int, max_bytes: int, held: Held | None) -> None:
        self.ended = False
        self._receive = receive
        self._claimed_bytes = claimed_bytes
        self._max_bytes = max_bytes
        self._held = held
        self._num_bytes = 0

    async def receive(self) -> Message:
        if self.ended:
            return await self._receive()
        if not self._num_bytes:
            self._count(self._claimed_bytes)
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        self.ended = not message.get("more_body", False)
        self._num_bytes += len(message.get("body", b""))
        self._count(self._num_bytes)
        return message

    def _count(self, num_bytes: int) -> None:
        try:
            if num_bytes > self._max_bytes:
                raise TooLarge("the request body is larger than this server accepts")
            if self._held is not None:
                self._held.grow(num_bytes)
        except PeltierError as error:
            raise RefusedBody(error) from None


class _JSONRequest(LimitedRequest):
    def __init__(self, request: Request, read: Callable[[bytes], Any], preparation: Preparation, held: Held) -> None:
        super().__init__(request, preparation.max_body_bytes, held)
        self._read = read
        self._preparation = preparation

    async def body(self) -> bytes:
        """Without the framework's generators, which take longer than to parse a small body."""
        if not hasattr(self, "_body"):
            pieces = list[bytes]()
            while not self._incoming.ended:
                pieces.append((await self.receive()).get("body", b""))
            self._body = b"".join(pieces)
        return self._body

    async def json(self) -> Any:
        """The body as its model, which the framework then takes as it is. Raises `RefusedBody`."""
        text = await self.body()
        try:
            if len(text) <= _BYTES_ON_THE_LOOP:
                return self._read(text)
            tenant = context_of(self.scope).tenant
            work = self._preparation.run(tenant, len(text) // _BYTES_PER_COST, partial(self._read, text))
            return await cancel_on_disconnect(self, work)
        except json.JSONDecodeError as error:
            raise RefusedBody(BadRequest(f"the body is not JSON: {error.msg} at character {error.pos}")) from None
        except (ValueError, RecursionError):
            # Bytes that are no text, nesting without end, a number of a million digits.
            raise RefusedBody(BadRequest("the request body cannot be read")) from None
        except PeltierError as error:
            raise RefusedBody(error) from None


def read_json(text: bytes, *, model: Model, hook: Hook, max_inputs: int) -> Any:
    """What a body says, as its model where it has one. Raises `JSONDecodeError` where it is no JSON, `TooLarge` and
    `InvalidInput` where it is too much, and what validation finds as `InvalidInput`."""
    if model is not None and hook is None and len(text) <= _BYTES_ON_THE_LOOP:
        try:
            # Too short for very many values, and parsed at once in half of the time.
            return model.model_validate_json(text)
        except ValueError:
            pass  # what is wrong is found, and worded, below
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


def _content_length(request: Request) -> int:
    claimed = request.headers.get("content-length", "")
    return int(claimed) if claimed.isdecimal() and len(claimed) < 20 else 0
