"""The memory of adapters' weights: whole pages of the system's own."""

import ctypes
import mmap
import threading
import weakref
from collections import deque

# Where the system can make all pages at once, it takes half as long as a fault for each of them.
_FLAGS = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_POPULATE", 0)
_MAX_KEPT_BYTES = 8 * 1024 * 1024

Memory = ctypes.Array[ctypes.c_char]


class Pages:
    """Gives out memory, which comes back when nobody refers to it any more. Safe from any thread.

    It goes on to the system, which the C library's allocator would not do: after a thousand adapters of 0.1 to 1.4 MB
    it returned a tenth. At most `max_kept_bytes` of what was given back last wait for the next adapter of the same size
    instead: where adapters take each other's place, making and clearing new pages would be a third of a load.
    """

    def __init__(self, max_kept_bytes: int = _MAX_KEPT_BYTES) -> None:
        self._max_kept_bytes = max_kept_bytes
        self._kept: deque[mmap.mmap] = deque()
        self.kept_bytes = 0
        # Memory may come back while its own thread is in here.
        self._lock = threading.RLock()

    def take(self, num_bytes: int) -> Memory:
        """Memory of so many bytes, rounded up to whole pages; what is in it is anything."""
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
