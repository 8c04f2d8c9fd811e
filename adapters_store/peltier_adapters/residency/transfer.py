"""An adapter's numbers on their way from the host to the device."""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from peltier_adapters.artifact.weights import Weights
from peltier_adapters.residency.page_lock import PageLocks


class PendingCopy:
    """A copy to a GPU that may still be under way."""

    def __init__(self, flat: Tensor, copied: torch.cuda.Event) -> None:
        self._flat, self._copied = flat, copied
        self._streams: set[torch.cuda.Stream] = set()

    def wait(self) -> None:
        """What this thread gives its stream from now on runs after the copy, and what it has given runs before anybody
        else gets the memory. The thread itself does not wait."""
        stream = torch.cuda.current_stream()
        if stream not in self._streams:
            stream.wait_event(self._copied)
            self._flat.record_stream(stream)
            self._streams.add(stream)


class DeviceCopy(NamedTuple):
    """An adapter's flat tensor on the device, and what a reader waits for where it may not be there yet."""

    flat: Tensor
    arrival: PendingCopy | None


# From any thread.
Transfer = Callable[[Weights], DeviceCopy]


def create_transfer(device: torch.device) -> Transfer:
    """How adapters come to `device`."""
    return CopyStream(device) if device.type == "cuda" else share_host


def share_host(weights: Weights) -> DeviceCopy:
    """On the CPU the host's copy and the device's are one."""
    return DeviceCopy(weights.flat, None)


class CopyStream:
    """Copies to a GPU from page-locked memory, on a stream beside that of the batches. It returns at once: a batch that
    reads the adapter waits for it on the card, and no other one does.

    The device's memory is of this stream's pool, where loads alone reuse it.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._locks = PageLocks()

    def __call__(self, weights: Weights) -> DeviceCopy:
        pages = self._locks.lock(weights)
        with torch.cuda.stream(self._stream):
            flat = torch.empty_like(weights.flat, device=self._device)
            flat.copy_(weights.flat, non_blocking=pages is not None)
            copied = torch.cuda.Event()  # type: ignore[no-untyped-call]
            copied.record(self._stream)
        if pages is not None:
            pages.copied = copied
        return DeviceCopy(flat, PendingCopy(flat, copied))
