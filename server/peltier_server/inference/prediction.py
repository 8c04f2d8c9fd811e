"""An answer, the facts about it that are known before it is complete, and its JSON. A large answer is serialised in
pieces that take turns with the work of other tenants."""

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Any, NamedTuple

from fastapi import Response
from peltier_client.errors import ErrorBody, InvalidInput
from peltier_client.protocol.predict import AdapterRef, TextPrediction, Tier
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

# So many values of a long list are serialised together.
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
    """The answer to a request. `num_new_tokens` is None unless texts were generated."""

    opening: StreamStart
    predictions: Sequence[OnePrediction]
    num_new_tokens: int | None
    timings: PhaseTimes
    batch_rows: int
    batch_adapters: int

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

    @property
    def fields(self) -> Iterator[dict[str, Any]]:
        """Each prediction of a task that generates no texts."""
        return (one for one in self.predictions if isinstance(one, dict))

    def json(self) -> bytes:
        """Its `PredictResponse`."""
        return to_json({**self.provenance, "predictions": self.predictions})


async def prediction_json(preparation: Preparation, context: RequestContext, prediction: Prediction) -> bytes:
    """The JSON body of a prediction."""
    if len(prediction.predictions) == 1 and not _has_long(prediction.predictions[0]):
        return await write_pieces(preparation, context, iter((prediction.json(),)))
    return await write_json(preparation, context, _one_by_one(prediction))


async def mixed_json(
    preparation: Preparation, context: RequestContext, results: Sequence[Prediction | ErrorBody],
    tasks: Sequence[str] | None = None,
) -> bytes:  # fmt: skip
    """The JSON body of a mixed answer, with the names of its `tasks` if given."""
    listed = (_one_by_one(result) if isinstance(result, Prediction) else result for result in results)
    return await write_json(preparation, context, ({} if tasks is None else {"tasks": tasks}) | {"results": listed})


def _one_by_one(prediction: Prediction) -> dict[str, Any]:
    return {**prediction.provenance, "predictions": iter(prediction.predictions)}


async def write_json(preparation: Preparation, context: RequestContext, value: object) -> bytes:
    """The body with the JSON of a value (`json_pieces`), written and counted like `write_pieces`."""
    return await write_pieces(preparation, context, json_pieces(value))


async def write_pieces(
    preparation: Preparation, context: RequestContext, pieces: Iterator[bytes], num_before: int = 0
) -> bytes:
    """The body that `pieces` make, the first of them on the event loop, the others in a thread, in turns with the work
    of other tenants.

    Its bytes, and `num_before` that the answer has besides, are counted as they are written. Raises `InvalidInput` if
    they are more than an answer may have, and `QueueFull` if there is no room for them.
    """
    body, limit = bytearray(), preparation.limits.max_answer_bytes
    more = _write_some(pieces, body, BYTES_ON_THE_LOOP)
    while num_before + len(body) <= limit:
        context.reserve(num_before + len(body))
        if not more:
            return bytes(body)
        write = partial(_write_some, pieces, body, PIECE_BYTES, pause=True)
        more = await preparation.run(context.tenant, MAX_PIECE_COST, write)
    raise too_large(limit)


def too_large(limit: int) -> InvalidInput:
    """The error of an answer of more than `limit` bytes."""
    return InvalidInput(f"the answer has more than {limit} bytes, the most that max_answer_bytes of this server allows")


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


def json_pieces(value: Any) -> Iterator[bytes]:
    """The JSON of a value in pieces. The values of an iterator are written one by one, those of a long list of lists or
    objects some at a time, and everything else at once."""
    if isinstance(value, Iterator):
        yield from _listed(json_pieces(one) for one in value)
    elif _is_long(value):
        starts = range(0, len(value), _PIECE_VALUES)
        yield from _listed((to_json(value[start : start + _PIECE_VALUES])[1:-1],) for start in starts)
    elif _has_long(value):
        before = b"{"
        for is_long, fields in groupby(value.items(), key=lambda field: _is_long(field[1])):
            if is_long:
                for name, own in fields:
                    yield before + to_json(name) + b":"
                    yield from json_pieces(own)
                    before = b","
            else:
                yield before + to_json(dict(fields))[1:-1]
            before = b","
        yield b"}"
    else:
        yield to_json(value)


def _listed(values: Iterable[Iterable[bytes]]) -> Iterator[bytes]:
    before = b"["
    for pieces in values:
        for piece in pieces:
            yield before + piece
            before = b""
        before = b","
    yield b"]" if before == b"," else b"[]"


def _is_long(value: object) -> bool:
    if isinstance(value, list):
        return len(value) > _PIECE_VALUES and isinstance(value[0], list | dict | BaseModel)
    return isinstance(value, Iterator)


def _has_long(value: object) -> bool:
    return isinstance(value, dict) and any(map(_is_long, value.values()))


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
