"""Memory for adapters' weights, in whole pages of the operating system."""

import ctypes
import mmap
import threading
import weakref
from collections import deque

# Mapping all pages at once takes half as long as a page fault for each.
_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_POPULATE", 0)
_MAX_KEPT_BYTES = 8 * 1024 * 1024

Memory = ctypes.Array[ctypes.c_char]


class Pages:
    """Allocates memory, and frees it when nothing refers to it any more. Thread-safe.

    Freed memory goes back to the operating system. The C library's allocator would keep it: after a thousand adapters
    of 0.1 to 1.4 MB it returned a tenth. At most `max_kept_bytes` of recently freed memory are kept for the next
    adapter of the same size, because mapping and clearing new pages would take a third of a load.
    """

    def __init__(self, max_kept_bytes: int = _MAX_KEPT_BYTES) -> None:
        self._max_kept_bytes = max_kept_bytes
        self._kept: deque[mmap.mmap] = deque()
        self.kept_bytes = 0
        # Reentrant, because a finalizer may run in a thread that holds the lock.
        self._lock = threading.RLock()

    def take(self, num_bytes: int) -> Memory:
        """Uninitialised memory of this size, rounded up to whole pages."""
        size = num_pages_bytes(num_bytes)
        pages = self._reuse(size) or mmap.mmap(-1, size, flags=_FLAGS)
        memory = (ctypes.c_char * size).from_buffer(pages)
        weakref.finalize(memory, self._give_back, pages).atexit = False
        return memory

    def _reuse(self, size: int) -> mmap.mmap | None:
        with self._lock:
            for pages in reversed(self._kept):
                if len(pages) == size:
                    self._kept.remove(pages)
                    self.kept_bytes -= size
                    return pages
        return None

    def _give_back(self, pages: mmap.mmap) -> None:
        with self._lock:
            self._kept.append(pages)
            self.kept_bytes += len(pages)
            while self.kept_bytes > self._max_kept_bytes:
                self.kept_bytes -= len(self._kept.popleft())


def num_pages_bytes(num_bytes: int) -> int:
    """`num_bytes` in whole pages, at least one."""
    return max(1, -(-num_bytes // mmap.PAGESIZE)) * mmap.PAGESIZE
