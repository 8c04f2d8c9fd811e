"""The JSON of an answer."""

import asyncio
import time
from collections.abc import Iterator, Sequence

from peltier_client.errors import ErrorBody
from peltier_client.protocol import PredictResponse

# Below this, handing the work to a thread costs more than the work.
BYTES_ON_THE_LOOP = 64 * 1024


async def prediction_json(response: PredictResponse, max_bytes: int) -> bytes:
    """The body of a prediction that has at most `max_bytes`."""
    if max_bytes <= BYTES_ON_THE_LOOP:
        return response.model_dump_json(by_alias=True).encode()
    return await asyncio.to_thread(_join, _pieces(response))


async def mixed_json(results: Sequence[PredictResponse | ErrorBody], max_bytes: int) -> bytes:
    """The body of a mixed answer that has at most `max_bytes`, errors not counted."""
    pieces = _listed(results)
    return b"".join(pieces) if max_bytes <= BYTES_ON_THE_LOOP else await asyncio.to_thread(_join, pieces)


def _join(pieces: Iterator[bytes]) -> bytes:
    """All pieces, in a thread: pydantic lets no other thread run while it writes one."""
    joined = bytearray()
    for piece in pieces:
        joined += piece
        time.sleep(0)  # the event loop goes first
    return bytes(joined)


def _pieces(response: PredictResponse) -> Iterator[bytes]:
    # Predictions are its last field.
    yield response.model_dump_json(by_alias=True, exclude={"predictions"}).removesuffix("}").encode()
    yield b',"predictions":'
    before = b"["
    for prediction in response.predictions:
        yield before + prediction.model_dump_json(by_alias=True).encode()
        before = b","
    yield b"]}"


def _listed(results: Sequence[PredictResponse | ErrorBody]) -> Iterator[bytes]:
    before = b'{"results":['
    for result in results:
        yield before + result.model_dump_json(by_alias=True).encode()
        before = b","
    yield b"]}"
