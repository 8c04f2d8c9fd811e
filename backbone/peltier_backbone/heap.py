"""The C library's heap, which torch takes the memory of a batch from."""

import ctypes
import sys
from typing import Any

# `mallopt`'s numbers in glibc.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_KEPT_BYTES = 1024**3
# Before version 2.35 no larger block was ever taken from the heap.
_OLD_LIMIT = 32 * 1024**2


def keep_freed_memory() -> bool:
    """Have batches use each other's memory again; to be called once, before threads start. Whether this C library can.

    Left to itself, glibc gives large blocks and the heap's end back to the system whenever a batch ends, and the next
    one faults every page of it in anew: 6,700 pages, 13 of 222 ms, in 32 mixed rows of SST-2's lengths on MiniLM. So up
    to 1 GiB of what is free stays here. There is one heap for all threads, because one of a thread's own holds no block
    of more than 64 MiB. Adapters' weights are elsewhere, and go back when they leave
    (`peltier_adapters.artifact.pages`).
    """
    mallopt = _of_libc("mallopt")
    if mallopt is None:
        return False
    blocks = mallopt(_MMAP_THRESHOLD, _KEPT_BYTES) or mallopt(_MMAP_THRESHOLD, _OLD_LIMIT)
    return bool(blocks and mallopt(_TRIM_THRESHOLD, _KEPT_BYTES) and mallopt(_ARENA_MAX, 1))


def give_back_freed_memory() -> bool:
    """Hands what is kept back to the system, for whatever else is short of it, such as the code that oneDNN writes.
    What stands between blocks in use stays the heap's own. Whether there was any to give."""
    malloc_trim = _of_libc("malloc_trim")
    return malloc_trim is not None and bool(malloc_trim(0))


def _of_libc(name: str) -> Any:
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
