"""Memory of the host that a GPU's copy engine may read by itself.

A copy from ordinary memory goes through a buffer of the driver's, and whoever asks for it waits. So an adapter's own
pages are locked where they lie (cudaHostRegister), once for as long as it stays in the host tier. torch's pinned
allocator is not used: it rounds each adapter up to a power of two and keeps what is freed, and then neither the budget
in bytes nor an eviction would mean what they say. Locking costs system calls, and unlocking may wait for the card, so
both happen on threads that may wait.
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
    """The memory of one adapter, locked until nobody holds the adapter any more. `copied` is the end of its last copy,
    before which it must stay."""

    def __init__(self, memory: Tensor) -> None:
        self.memory = memory
        self.copied: torch.cuda.Event | None = None


class PageLocks:
    """Locks adapters' memory and unlocks it with their last reference. Safe from any thread."""

    def __init__(self) -> None:
        self._runtime = torch.cuda.cudart()  # type: ignore[no-untyped-call]
        self._locked: dict[int, LockedPages] = {}
        self._lock = threading.Lock()
        self._refused = False
        # A finaliser may run anywhere, also inside `lock`, and this queue is made for that.
        self._gone: SimpleQueue[LockedPages] = SimpleQueue()
        threading.Thread(target=self._unlock, name="page-locks", daemon=True).start()

    def lock(self, weights: Weights) -> LockedPages | None:
        """The pages of `weights`, locked from now on; None where the system locks no more of them."""
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
            del pages  # or the thread would keep the memory until the next one goes
