"""Copies the tensors of an adapter from the host to the device."""

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from peltier_adapters.artifact.weights import AdapterWeights

# Most adapters fit; larger ones are copied in pieces.
_STAGING_ELEMENTS = 2 * 1024 * 1024


class PendingCopy:
    """A copy to a GPU that may still run."""

    def __init__(self, flats: Sequence[Tensor], copied: torch.cuda.Event) -> None:
        self._flats, self._copied = flats, copied
        self._streams: set[torch.cuda.Stream] = set()

    def wait(self) -> None:
        """Makes the current stream of this thread wait for the copy. The memory is not reused before the stream's work
        has ended. The thread itself does not wait."""
        stream = torch.cuda.current_stream()
        if stream not in self._streams:
            stream.wait_event(self._copied)
            for flat in self._flats:
                flat.record_stream(stream)
            self._streams.add(stream)


class DeviceCopy(NamedTuple):
    """The pieces of an adapter on the device, and the copy that a reader must wait for; None without a copy."""

    flats: tuple[Tensor, Tensor]
    arrival: PendingCopy | None


# Cuts the flat tensor of an adapter on the device into its pieces.
Cut = Callable[[Tensor], tuple[Tensor, Tensor]]
# Copies weights to a device. Safe from any thread.
Transfer = Callable[[AdapterWeights, Cut], DeviceCopy]


def create_transfer(device: torch.device) -> Transfer:
    """The function that copies adapters to `device`."""
    return CopyStream(device) if device.type == "cuda" else share_host


def share_host(weights: AdapterWeights, cut: Cut) -> DeviceCopy:
    """Copies nothing, because on the CPU the device uses the host's tensors."""
    return DeviceCopy(cut(weights.flat), None)


class CopyStream:
    """Copies to a GPU on a separate stream from the batches, through one page-locked buffer, which the copy engine
    reads directly. A call waits for the previous copy to leave the buffer, not for its own. On the GPU, only batches
    that read the adapter wait for its copy.

    The device memory belongs to the pool of this stream, so only other loads reuse it.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._staging = torch.empty(_STAGING_ELEMENTS).pin_memory()
        self._left = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._lock = threading.Lock()

    def __call__(self, weights: AdapterWeights, cut: Cut) -> DeviceCopy:
        with self._lock, torch.cuda.stream(self._stream):
            flat = torch.empty_like(weights.flat, device=self._device)
            pieces = (torch.split(one, _STAGING_ELEMENTS) for one in (flat, weights.flat))
            for target, source in zip(*pieces, strict=True):
                self._copy(target, source)
            flats, ready = cut(flat), torch.cuda.Event()  # type: ignore[no-untyped-call]
            ready.record(self._stream)
            return DeviceCopy(flats, PendingCopy(flats, ready))

    def _copy(self, target: Tensor, source: Tensor) -> None:
        self._left.synchronize()
        target.copy_(self._staging[: len(source)].copy_(source), non_blocking=True)
        self._left = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._left.record(self._stream)
