"""Settings of the C library's heap, from which torch allocates the memory of a batch."""

import ctypes
import sys
from typing import Any

# The parameter numbers of `mallopt` in glibc.
_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8
_KEPT_BYTES = 1024**3
# Before version 2.35 glibc allocates no larger block from the heap.
_OLD_LIMIT = 32 * 1024**2


def keep_freed_memory() -> bool:
    """Reuse memory freed by earlier batches. Call it once, before threads start. Returns whether this C library can.

    By default glibc returns large blocks and the end of the heap to the system after each batch, and the next batch
    faults in every page again: 6,700 pages, 13 of 222 ms, for 32 mixed rows of SST-2's lengths on MiniLM. So up to
    1 GiB of free memory is kept. All threads share one heap, because a thread's own heap holds no block of more than
    64 MiB. Adapters' weights are not in the heap; their memory is returned when they are evicted
    (`peltier_adapters.artifact.weights`).
    """
    mallopt = _of_libc("mallopt")
    if mallopt is None:
        return False
    blocks = mallopt(_MMAP_THRESHOLD, _KEPT_BYTES) or mallopt(_MMAP_THRESHOLD, _OLD_LIMIT)
    return bool(blocks and mallopt(_TRIM_THRESHOLD, _KEPT_BYTES) and mallopt(_ARENA_MAX, 1))


def give_back_freed_memory() -> bool:
    """Return the kept memory to the system, for example for code that oneDNN generates. Memory between blocks in use
    stays in the heap. Returns whether any was returned."""
    malloc_trim = _of_libc("malloc_trim")
    return malloc_trim is not None and bool(malloc_trim(0))


def _of_libc(name: str) -> Any:
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
