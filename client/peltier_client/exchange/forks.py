"""Forks of the process: a connection belongs to the process that opened it, because a forked process would read the
answers of the other one."""

import os
from collections.abc import AsyncIterator, Iterator

import httpx2

from peltier_client.exchange.transfer import OnProgress

_num_forks = 0


def num_forks() -> int:
    """How many forks made this process; what an object has noted is another number in a process forked since."""
    return _num_forks


class OwnBody(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """The body of a response for the process that began to receive it. In a process forked since it raises a
    `ReadError` before it takes a byte, and leaves the connection as it is. `report` is told how much has arrived."""

    def __init__(self, response: httpx2.Response, report: OnProgress | None) -> None:
        self._response, self._stream, self._report = response, response.stream, report
        self._num_forks = num_forks()
        length = response.headers.get("content-length", "")
        self._size = int(length) if length.isdecimal() else None
        self._arrived = 0

    def __iter__(self) -> Iterator[bytes]:
        assert isinstance(self._stream, httpx2.SyncByteStream), "of a synchronous client"
        chunks = iter(self._stream)
        while True:
            self._require_own()
            chunk = next(chunks, None)
            if chunk is None:
                return
            self._count(chunk)
            yield chunk

    async def __aiter__(self) -> AsyncIterator[bytes]:
        assert isinstance(self._stream, httpx2.AsyncByteStream), "of an asynchronous client"
        chunks = aiter(self._stream)
        while True:
            self._require_own()
            chunk = await anext(chunks, None)
            if chunk is None:
                return
            self._count(chunk)
            yield chunk

    def _count(self, chunk: bytes) -> None:
        self._arrived += len(chunk)
        if self._report is not None:
            self._report(self._arrived, self._size)

    def close(self) -> None:
        assert isinstance(self._stream, httpx2.SyncByteStream), "of a synchronous client"
        if self._is_own:
            self._stream.close()

    async def aclose(self) -> None:
        assert isinstance(self._stream, httpx2.AsyncByteStream), "of an asynchronous client"
        if self._is_own:
            await self._stream.aclose()

    @property
    def _is_own(self) -> bool:
        return self._num_forks == num_forks()

    def _require_own(self) -> None:
        if not self._is_own:
            raise httpx2.ReadError(
                "the process was forked while the answer arrived, which only the parent can read on",
                request=self._response.request,
            )


def _count_fork() -> None:
    global _num_forks
    _num_forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_count_fork)
