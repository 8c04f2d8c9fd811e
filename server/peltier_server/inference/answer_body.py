"""Serialises answers as JSON. A large answer is serialised in pieces that take turns with the work of other tenants."""

import time
from collections.abc import Iterator, Sequence
from functools import partial

from peltier_client.errors import ErrorBody
from pydantic_core import to_json

from peltier_server.fairness.preparation import MAX_PIECE_COST, Preparation
from peltier_server.inference.prediction import Prediction

# Below this, handing the work to a thread costs more than the work.
BYTES_ON_THE_LOOP = 64 * 1024
# Serialising this many bytes of an answer takes about as long as tokenising `MAX_PIECE_COST` characters.
PIECE_BYTES = 128 * 1024


async def prediction_json(preparation: Preparation, tenant: str, prediction: Prediction) -> bytes:
    """The JSON body of a prediction."""
    if prediction.max_bytes <= BYTES_ON_THE_LOOP:
        return prediction.json()
    return await write_pieces(preparation, tenant, _pieces(prediction))


async def mixed_json(
    preparation: Preparation, tenant: str, results: Sequence[Prediction | ErrorBody], max_bytes: int,
    tasks: Sequence[str] | None = None,
) -> bytes:  # fmt: skip
    """The JSON body of a mixed answer, with the names of its `tasks` if given. The body has at most `max_bytes`,
    without its errors and these names."""
    pieces = _listed(results, tasks)
    return b"".join(pieces) if max_bytes <= BYTES_ON_THE_LOOP else await write_pieces(preparation, tenant, pieces)


async def write_pieces(preparation: Preparation, tenant: str, pieces: Iterator[bytes]) -> bytes:
    """A body of `pieces`, in turns with the work of other tenants."""
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
        yield before + to_json(one)
        before = b","
    yield b"]}"


def _listed(results: Sequence[Prediction | ErrorBody], tasks: Sequence[str] | None) -> Iterator[bytes]:
    before = b'{"results":[' if tasks is None else b'{"tasks":' + to_json(tasks) + b',"results":['
    for result in results:
        yield before + (result.json() if isinstance(result, Prediction) else to_json(result))
        before = b","
    yield b"]}"
