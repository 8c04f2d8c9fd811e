"""The header `Idempotency-Key`, by which a caller repeats a request whose answer it has not seen."""

import asyncio
import hashlib
from typing import Annotated

from fastapi import Depends, Header, Request
from peltier_store.registry.extensions.queue_records import IdempotencyKey

_DESCRIPTION = (
    "A word that the caller makes up for a request, and sends again when it repeats the request: then the answer has "
    "what the first one created."
)
# The strings of RFC 8941 are of these characters; others send bare words.
_Word = Annotated[str | None, Header(alias="Idempotency-Key", pattern="^[ -~]{1,255}$", description=_DESCRIPTION)]


async def read_key(request: Request, word: _Word = None) -> IdempotencyKey | None:
    """The key of a request with the digest of its address and body; None without the header."""
    if word is None:
        return None
    body = await request.body()
    digest = hashlib.sha256(request.url.path.encode() + b"\0")
    # The lock of the interpreter is free meanwhile.
    await asyncio.to_thread(digest.update, body)
    return IdempotencyKey(word, digest.hexdigest())


Repeatable = Annotated[IdempotencyKey | None, Depends(read_key)]
