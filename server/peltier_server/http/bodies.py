"""Reads the bodies of routes: bounded in bytes, and large JSON parsed in a thread, by turns between tenants."""

import json
import reprlib
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from peltier_adapters.artifact.header import doubled_name, has_more_tokens
from peltier_client.errors import BadRequest, InvalidInput, PeltierError, TooLarge
from pydantic import BaseModel, ValidationError

from peltier_server.context import BodyLimit, context_of
from peltier_server.errors import RefusedBody, to_wire
from peltier_server.fairness.preparation import Preparation
from peltier_server.http.disconnects import cancel_on_disconnect

T = TypeVar("T")

Handler = Callable[[Request], Coroutine[Any, Any, Response]]
BodyModel = type[BaseModel] | None
# Builds the dict of a JSON object from its names and values; None accepts a name that occurs twice.
Hook = Callable[[list[tuple[str, Any]]], dict[str, Any]] | None
# The length in bytes of the JSON at the start of a body; None if the whole body is JSON.
JSONLength = Callable[[Request], int | None]

# Much more than any request needs, even with three texts an input and every parameter set.
_TOKENS_PER_INPUT = 64
_MIN_TOKENS = 65_536
# An object has at most ten keys. To report thousands of unknown ones would take as long as a batch.
_MAX_KEYS = 1000
# To describe one mistake takes thirty microseconds, and a longer list helps no reader.
_MAX_MISTAKES = 1000
# The event loop parses smaller bodies itself, in less time than a thread needs to start.
SMALL_BODY_BYTES = 16 * 1024
# To parse a byte takes as long as to tokenise a hundredth of a character.
BYTES_PER_COST = 100
# The keys of a body, or of an object in it, that hold a list of inputs, and the names of these lists in error messages.
_LISTS = {
    "inputs": "inputs", "input": "inputs", "requests": "requests", "tasks": "tasks", "prompt": "prompts",
    "documents": "documents", "texts": "texts", "sentences": "sentences",
}  # fmt: skip
# No value has more. A number of thousands of digits takes a millisecond.
_MAX_DIGITS = 40
# To describe all mistakes takes as long as to tokenise this many characters.
_DESCRIPTION_COST = 4096


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
            context.body_limit = BodyLimit(preparation.limits.max_body_bytes, held)
            read = partial(read_json, model=model, hook=hook, max_inputs=preparation.limits.max_inputs)
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
    return _bounded(pairs)


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
            return await self._in_thread(len(text) // BYTES_PER_COST, partial(self._read, text))
        except ValidationError as error:
            refusal = await self._in_thread(_DESCRIPTION_COST, partial(_refusal, error))
        except json.JSONDecodeError as error:
            refusal = BadRequest(f"the body is not JSON: {error.msg} at character {error.pos}")
        except UnicodeDecodeError as error:
            refusal = BadRequest(f"the body is not UTF-8: its byte {error.start} begins no character")
        except RecursionError:
            refusal = _too_deep()
        except PeltierError as error:
            refusal = error
        raise RefusedBody(refusal)

    async def _in_thread(self, cost: int, work: Callable[[], T]) -> T:
        tenant = context_of(self.scope).tenant
        return await cancel_on_disconnect(self, self._preparation.run(tenant, cost, work))


def read_json(text: bytes, *, model: BodyModel, hook: Hook, max_inputs: int) -> Any:
    """The parsed body, as an instance of `model` if that is given. Raises `JSONDecodeError` for text that is not
    JSON, `UnicodeDecodeError` for bytes that are no text, `RecursionError` for deep nesting, `TooLarge` or
    `InvalidInput` for too many values or inputs, and `ValidationError` for a body that is not of the model.
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
    body = json.loads(text.decode("utf-8-sig"), object_pairs_hook=hook or _bounded, parse_int=_to_int)
    if isinstance(body, dict):
        for part in (body, *body.values()):
            _check_counts(part, max_inputs)
    return body if model is None else model.model_validate(body)


def _check_counts(part: Any, max_inputs: int) -> None:
    for key in _LISTS.keys() & part.keys() if isinstance(part, dict) else ():
        if isinstance(value := part[key], list) and len(value) > max_inputs:
            raise InvalidInput(f"the request has {len(value)} {_LISTS[key]}; at most {max_inputs} are allowed")


def _bounded(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """The dict of a JSON object."""
    if len(pairs) > _MAX_KEYS:
        raise InvalidInput(f"the request body has an object of {len(pairs)} keys; at most {_MAX_KEYS} are read")
    return dict(pairs)


def _to_int(digits: str) -> int:
    if len(digits) > _MAX_DIGITS:
        raise BadRequest(f"the body has a whole number of {len(digits)} digits; at most {_MAX_DIGITS} are read")
    return int(digits)


def _too_deep() -> BadRequest:
    return BadRequest("the body nests lists or objects more deeply than this server reads")


def _refusal(error: ValidationError) -> PeltierError:
    if error.error_count() > _MAX_MISTAKES:
        return InvalidInput(
            f"the request body has {error.error_count()} mistakes; they are named where there are at most "
            f"{_MAX_MISTAKES}"
        )
    problems = error.errors(include_url=False)
    if any(one["type"].startswith("recursion_") for one in problems):
        return _too_deep()
    return to_wire(RequestValidationError([{**one, "loc": ("body", *one["loc"])} for one in problems]))
