"""The files of a web page, as its build left them."""

import asyncio
import gzip
import hashlib
import mimetypes
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from fastapi import Request
from fastapi.responses import Response, StreamingResponse

from peltier_server.context import PIECE_BYTES

# The build names each file of this folder after a digest of its content.
_HASHED = "assets/"
_FOREVER, _ASK_AGAIN = "public, max-age=31536000, immutable", "no-cache"


@dataclass(frozen=True)
class BuiltFile:
    """One file. All requests share its bytes, so that slow readers take no memory for a copy each."""

    path: str
    content: bytes

    @cached_property
    def gzipped(self) -> bytes:
        """The content for callers that accept gzip, compressed once. Takes some 50 ms for a megabyte."""
        return gzip.compress(self.content, mtime=0)

    @cached_property
    def _etag(self) -> str:
        return f'W/"{hashlib.sha256(self.content).hexdigest()[:32]}"'

    async def answer(self, request: Request) -> Response:
        """The file, or 304 if the caller has it. A file whose name has its digest is never asked for again."""
        headers = {
            "cache-control": _FOREVER if self.path.startswith(_HASHED) else _ASK_AGAIN,
            "etag": self._etag,
            "vary": "accept-encoding",
        }
        if self._etag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        content = self.content
        if accepts_gzip(request.headers.get("accept-encoding", "")):
            content = await asyncio.to_thread(getattr, self, "gzipped")
            headers["content-encoding"] = "gzip"
        headers["content-length"] = str(len(content))
        media_type = mimetypes.guess_type(self.path)[0] or "application/octet-stream"
        return StreamingResponse(_pieces(content), headers=headers, media_type=media_type)


def accepts_gzip(header: str) -> bool:
    """Whether a header `accept-encoding` allows gzip: by its name or by `*`, with a quality above 0 (RFC 9110, section
    12.5.3)."""
    qualities = {}
    for item in header.lower().split(","):
        name, _, parameters = item.partition(";")
        quality = re.fullmatch(r"\s*q\s*=\s*([\d.]+)\s*", parameters)
        qualities[name.strip()] = quality is None or quality[1].strip("0.") != ""
    return qualities.get("gzip", qualities.get("x-gzip", qualities.get("*", False)))


def read_build(folder: Path) -> dict[str, BuiltFile]:
    """Every file of `folder` by its path in it; none if there is no such folder. A later build changes nothing here, so
    that the page and the files that it names always belong together.
    """
    files = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {(name := path.relative_to(folder).as_posix()): BuiltFile(name, path.read_bytes()) for path in files}


async def _pieces(content: bytes) -> AsyncIterator[bytes]:
    """Pieces of which each is sent after most of the one before it has left."""
    for begin in range(0, len(content), PIECE_BYTES):
        yield content[begin : begin + PIECE_BYTES]
