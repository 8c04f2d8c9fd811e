"""Page-locked host memory, which the copy engine of a GPU reads directly.

A copy from ordinary memory goes through a buffer of the driver, and the calling thread waits for it. So the pages of an
adapter are locked in place (cudaHostRegister), once, and stay locked while the adapter is in the host tier. torch's
pinned allocator is not used: it rounds the size of each adapter up to a power of two and keeps freed memory, so the
budget in bytes would be wrong and an eviction would free nothing. Locking costs system calls, and unlocking may wait
for the GPU, so both run on threads that may wait.
"""

import logging
import threading
import weakref
from queue import SimpleQueue

import torch
from torch import Tensor

from peltier_adapters.artifact.weights import Weights

logger = logging.getLogger(__name__)


class LockedPages:
    """The memory of one adapter, locked until the last reference to the adapter is gone. The memory must stay locked
    until `copied`, the end of its last copy."""

    def __init__(self, memory: Tensor) -> None:
        self.memory = memory
        self.copied: torch.cuda.Event | None = None


class PageLocks:
    """Locks the memory of adapters and unlocks it after the last reference to an adapter. Safe from any thread."""

    def __init__(self) -> None:
        self._runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        self._locked: dict[int, LockedPages] = {}
        self._lock = threading.Lock()
        self._refused = False
        # A finaliser may run at any point, also inside `lock`. `SimpleQueue.put` is reentrant.
        self._gone: SimpleQueue[LockedPages] = SimpleQueue()
        threading.Thread(target=self._unlock, name="page-locks", daemon=True).start()

    def lock(self, weights: Weights) -> LockedPages | None:
        """Locks the pages of `weights` if they are not locked yet. Returns None if the system refuses to lock them."""
        address = weights.flat.data_ptr()
        with self._lock:
            if address not in self._locked and self._register(address, weights.nbytes):
                self._locked[address] = LockedPages(weights.flat)
                weakref.finalize(weights, self._release, address).atexit = False
            return self._locked.get(address)

    def _register(self, address: int, nbytes: int) -> bool:
        error = int(self._runtime.cudaHostRegister(address, nbytes, 0))
        if error and not self._refused:
            logger.warning("cudaHostRegister of %d bytes gave error %d; such copies wait for the card", nbytes, error)
        self._refused = self._refused or error != 0
        return error == 0

    def _release(self, address: int) -> None:
        self._gone.put(self._locked.pop(address))

    def _unlock(self) -> None:
        while True:
            pages = self._gone.get()
            if pages.copied is not None:
                pages.copied.synchronize()
            self._runtime.cudaHostUnregister(pages.memory.data_ptr())
            del pages  # otherwise this thread would keep the memory until the next item of the queue
