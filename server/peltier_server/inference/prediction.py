"""An answer, the facts about it that are known before it is complete, and its JSON. A large answer is serialised in
pieces that take turns with the work of other tenants."""

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from fastapi import Response
from peltier_client.errors import ErrorBody, InvalidInput
from peltier_client.protocol import AdapterRef, TextPrediction, Tier
from pydantic import BaseModel
from pydantic_core import to_json

from peltier_server.context import RequestContext
from peltier_server.fairness.preparation import MAX_PIECE_COST, Preparation

# A text, or the fields of any other prediction of the protocol. To create and serialise a model takes four times as
# long as a dict.
OnePrediction = dict[str, Any] | TextPrediction

# Below this, handing the work to a thread costs more than the work.
BYTES_ON_THE_LOOP = 64 * 1024
# Serialising this many bytes of an answer takes about as long as tokenising `MAX_PIECE_COST` characters.
PIECE_BYTES = 128 * 1024

# The first fields of predictions whose lists may be most of the largest answer, and how many of their values are
# serialised together.
_LISTS = ("vectors", "terms", "entities")
_PIECE_VALUES = 16

# The header that tells how many inputs were truncated.
_TRUNCATED = "x-truncated-inputs"
# As OpenAPI describes it.
TRUNCATION_HEADER: dict[str, Any] = {
    _TRUNCATED: {"description": "How many inputs were truncated; absent if none.", "schema": {"type": "integer"}}
}


class StreamStart(NamedTuple):
    """The adapter that answers, its tier, the number of tokens of the inputs, and the number of truncated inputs."""

    adapter: AdapterRef
    tier: Tier
    num_tokens: int
    num_truncated: int


class PhaseTimes(NamedTuple):
    """The server's time by phase, in milliseconds."""

    queue: float
    load: float
    compute: float
    total: float


class Prediction(NamedTuple):
    """The answer to a request, and the maximum of bytes of its body. `num_new_tokens` is None unless texts were
    generated."""

    opening: StreamStart
    predictions: Sequence[OnePrediction]
    num_new_tokens: int | None
    timings: PhaseTimes
    batch_rows: int
    batch_adapters: int
    max_bytes: int

    @property
    def provenance(self) -> dict[str, Any]:
        """The fields of its `PredictResponse` except the predictions."""
        adapter, tier, num_tokens, num_truncated = self.opening
        queue, load, compute, total = self.timings
        usage = {"tokens": num_tokens, "truncated_inputs": num_truncated}
        if self.num_new_tokens is not None:
            usage["completion_tokens"] = self.num_new_tokens
        return {
            "task": adapter.name,
            "adapter": adapter,
            "tier": tier,
            "usage": usage,
            "timings_ms": {"queue": queue, "load": load, "compute": compute, "total": total},
            "batch": {"rows": self.batch_rows, "adapters": self.batch_adapters},
        }

    def json(self) -> bytes:
        """Its `PredictResponse`."""
        return to_json({**self.provenance, "predictions": self.predictions})


async def prediction_json(preparation: Preparation, context: RequestContext, prediction: Prediction) -> bytes:
    """The JSON body of a prediction."""
    if prediction.max_bytes <= BYTES_ON_THE_LOOP:
        return prediction.json()
    return await write_pieces(preparation, context, _pieces(prediction))


async def mixed_json(
    preparation: Preparation, context: RequestContext, results: Sequence[Prediction | ErrorBody],
    tasks: Sequence[str] | None = None,
) -> bytes:  # fmt: skip
    """The JSON body of a mixed answer, with the names of its `tasks` if given."""
    return await write_pieces(preparation, context, _listed(results, tasks))


async def write_pieces(
    preparation: Preparation, context: RequestContext, pieces: Iterator[bytes], num_before: int = 0
) -> bytes:
    """The body that `pieces` make, the first of them on the event loop, the others in a thread, in turns with the work
    of other tenants.

    Its bytes, and `num_before` that the answer has besides, are counted as they are written. Raises `InvalidInput` if
    they are more than an answer may have, and `QueueFull` if there is no room for them.
    """
    body, limit = bytearray(), preparation.max_answer_bytes
    more = _write_some(pieces, body, BYTES_ON_THE_LOOP)
    while num_before + len(body) <= limit:
        context.reserve(num_before + len(body))
        if not more:
            return bytes(body)
        write = partial(_write_some, pieces, body, PIECE_BYTES, pause=True)
        more = await preparation.run(context.tenant, MAX_PIECE_COST, write)
    raise InvalidInput(f"the answer has more than {limit} bytes, the most that max_answer_bytes of this server allows")


def _write_some(pieces: Iterator[bytes], body: bytearray, num_bytes: int, *, pause: bool = False) -> bool:
    """Appends pieces of at least `num_bytes` to `body`; returns whether more may follow. Threads `pause`."""
    end = len(body) + num_bytes
    for piece in pieces:
        body += piece
        if len(body) >= end:
            return True
        if pause:
            # pydantic holds the GIL while it serialises a piece. This lets the event loop run between two pieces.
            time.sleep(0)
    return False


def _pieces(prediction: Prediction) -> Iterator[bytes]:
    before = to_json(prediction.provenance).removesuffix(b"}") + b',"predictions":['
    for one in prediction.predictions:
        name = next((name for name in _LISTS if isinstance(one, dict) and name in one), None)
        if isinstance(one, dict) and name is not None:
            rest = {other: value for other, value in one.items() if other != name}
            yield before + b'{"%s":' % name.encode()
            yield from write_list(one[name])
            yield b"," + to_json(rest)[1:] if rest else b"}"
        else:
            yield before + to_json(one)
        before = b","
    yield b"]}"


def write_list(values: Sequence[Any]) -> Iterator[bytes]:
    """The JSON of a list, in pieces."""
    before = b"["
    for start in range(0, len(values), _PIECE_VALUES):
        yield before + to_json(values[start : start + _PIECE_VALUES])[1:-1]
        before = b","
    yield b"]" if values else b"[]"


def write_with_list(empty: BaseModel, name: str, values: Sequence[Any]) -> Iterator[bytes]:
    """The JSON of a response that is `empty` but for the list `name`, in pieces."""
    key = b'"%s":' % name.encode()
    # No text in JSON has these bytes: its quotes have backslashes.
    head, tail = to_json(empty).split(key + b"[]")
    yield head + key
    yield from write_list(values)
    yield tail


def _listed(results: Sequence[Prediction | ErrorBody], tasks: Sequence[str] | None) -> Iterator[bytes]:
    before = b'{"results":[' if tasks is None else b'{"tasks":' + to_json(tasks) + b',"results":['
    for result in results:
        yield before
        yield from _pieces(result) if isinstance(result, Prediction) else (to_json(result),)
        before = b","
    yield b"]}"


class JSONBytes(Response):
    """The status 200 with `body` and more headers, whose names are in lower case. The framework's own response takes
    7 µs to lower, encode and search the headers of a prediction.
    """

    def __init__(self, body: bytes, headers: Mapping[str, str]) -> None:
        self.body, self.status_code, self.background = body, 200, None
        self.raw_headers = [
            (b"content-length", str(len(body)).encode()),
            (b"content-type", b"application/json"),
            *((name.encode(), value.encode()) for name, value in headers.items()),
        ]


def truncation_header(num_inputs: int) -> dict[str, str]:
    """The header for `num_inputs` truncated inputs; none if none were."""
    return {_TRUNCATED: str(num_inputs)} if num_inputs else {}
