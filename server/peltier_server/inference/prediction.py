"""An answer, the facts about it that are known before it is complete, and its JSON. A large answer is serialised in
pieces that take turns with the work of other tenants."""

import time
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from fastapi import Response
from peltier_backbone.text.packing import Encoded
from peltier_client.errors import ErrorBody
from peltier_client.protocol import AdapterRef, TextPrediction, Tier
from pydantic_core import to_json

from peltier_server.fairness.preparation import MAX_PIECE_COST, Preparation

# A text, or the fields of any other prediction of the protocol. To create and serialise a model takes four times as
# long as a dict.
OnePrediction = dict[str, Any] | TextPrediction

# Below this, handing the work to a thread costs more than the work.
BYTES_ON_THE_LOOP = 64 * 1024
# Serialising this many bytes of an answer takes about as long as tokenising `MAX_PIECE_COST` characters.
PIECE_BYTES = 128 * 1024

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
    generated. `encoded` has the windows of each input."""

    opening: StreamStart
    predictions: Sequence[OnePrediction]
    num_new_tokens: int | None
    timings: PhaseTimes
    batch_rows: int
    batch_adapters: int
    max_bytes: int
    encoded: Sequence[Sequence[Encoded]] = ()

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


async def prediction_json(preparation: Preparation, tenant: str, prediction: Prediction) -> bytes:
    """The JSON body of a prediction."""
    if prediction.max_bytes <= BYTES_ON_THE_LOOP:
        return prediction.json()
    return await write_pieces(preparation, tenant, _pieces(prediction), prediction.max_bytes)


async def mixed_json(
    preparation: Preparation, tenant: str, results: Sequence[Prediction | ErrorBody], max_bytes: int,
    tasks: Sequence[str] | None = None,
) -> bytes:  # fmt: skip
    """The JSON body of a mixed answer, with the names of its `tasks` if given. The body has at most `max_bytes`,
    without its errors and these names."""
    return await write_pieces(preparation, tenant, _listed(results, tasks), max_bytes)


async def write_pieces(preparation: Preparation, tenant: str, pieces: Iterator[bytes], max_bytes: int) -> bytes:
    """A body of `pieces`, which have at most `max_bytes`; a large one in turns with the work of other tenants."""
    if max_bytes <= BYTES_ON_THE_LOOP:
        return b"".join(pieces)
    body = bytearray()
    while await preparation.run(tenant, MAX_PIECE_COST, partial(_write_some, pieces, body)):
        pass
    return await preparation.run(tenant, 1, partial(bytes, body))


def _write_some(pieces: Iterator[bytes], body: bytearray) -> bool:
    """Appends pieces to `body`; returns whether more may follow. Runs in a thread."""
    end = len(body) + PIECE_BYTES
    for piece in pieces:
        body += piece
        if len(body) >= end:
            return True
        # pydantic holds the GIL while it serialises a piece. This lets the event loop run between two pieces.
        time.sleep(0)
    return False


def _pieces(prediction: Prediction) -> Iterator[bytes]:
    yield to_json(prediction.provenance).removesuffix(b"}")
    yield b',"predictions":'
    before = b"["
    for one in prediction.predictions:
        if isinstance(one, dict) and "vectors" in one:
            # One text's vectors may be most of the largest answer.
            rest = {name: value for name, value in one.items() if name != "vectors"}
            yield before + b'{"vectors":['
            yield from write_vectors(one["vectors"])
            yield b"]," + to_json(rest)[1:] if rest else b"]}"
        else:
            yield before + to_json(one)
        before = b","
    yield b"]}"


def write_vectors(vectors: Sequence[Sequence[float]]) -> Iterator[bytes]:
    """The JSON of vectors without the brackets around them, a piece for each."""
    before = b""
    for vector in vectors:
        yield before + to_json(vector)
        before = b","


def _listed(results: Sequence[Prediction | ErrorBody], tasks: Sequence[str] | None) -> Iterator[bytes]:
    before = b'{"results":[' if tasks is None else b'{"tasks":' + to_json(tasks) + b',"results":['
    for result in results:
        yield before + (result.json() if isinstance(result, Prediction) else to_json(result))
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
