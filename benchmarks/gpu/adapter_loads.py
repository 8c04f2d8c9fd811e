"""One adapter from the host to the device: from ordinary memory, and as the server loads it."""

import statistics
import time
from collections.abc import Callable

import torch
from bench import Bench
from peltier_adapters.artifact.weights import AdapterWeights, Layout
from peltier_adapters.residency.transfer import DeviceCopy, create_transfer
from torch import Tensor

_COUNT = 20
_MATRIX = 8192
_PRODUCTS = 20


def compare_loads(bench: Bench, nbytes: int) -> None:
    """Checks the copied weights, then times copies.

    `pageable` is a copy from ordinary memory, `staged` one through the server's buffer, and `returns` the time until
    that call returns. `beside` is such a copy while the batches' stream is busy for longer (`busy`).
    """
    layout, transfer = Layout({"adapter": (nbytes // 4,)}), create_transfer(bench.device)
    adapters = [AdapterWeights.copy(layout, {"adapter": torch.randn(nbytes // 4)}) for _ in range(_COUNT)]
    sent = [_arrived(transfer(one, _whole)) for one in adapters]
    wrong = sum(not torch.equal(one.flats[0].cpu(), own.flat) for one, own in zip(sent, adapters, strict=True))
    bench.check("load check", float(wrong), 0.0, adapters=_COUNT)
    if bench.device.type != "cuda":
        return
    own = adapters[0]
    us = {
        "pageable": _median_us(lambda: own.flat.to(bench.device)),
        "staged": _median_us(lambda: transfer(own, _whole)),
        "returns": _median_us(lambda: transfer(own, _whole), wait=False),
    }
    us |= _beside_work(bench, lambda: transfer(own, _whole))
    bench.record("load", bytes=own.nbytes, us=us)


def _whole(flat: Tensor) -> tuple[Tensor, Tensor]:
    return flat, flat[:0]


def _arrived(sent: DeviceCopy) -> DeviceCopy:
    if sent.arrival is not None:
        sent.arrival.wait()
    return sent


def _median_us(call: Callable[[], object], *, wait: bool = True) -> float:
    taken = []
    for _ in range(_COUNT):
        torch.cuda.synchronize()
        start = time.perf_counter()
        call()
        if wait:
            torch.cuda.synchronize()
        taken.append(time.perf_counter() - start)
    return round(statistics.median(taken) * 1e6, 1)


def _beside_work(bench: Bench, send: Callable[[], DeviceCopy]) -> dict[str, float]:
    """A copy that starts after queued products ends long before them, if it has its own stream."""
    left, beside = torch.randn(_MATRIX, _MATRIX, device=bench.device), torch.cuda.Stream()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(_PRODUCTS):
        left @ left
    began = time.perf_counter()
    arrival = send().arrival
    assert arrival is not None, "copies to a GPU are waited for on the GPU"
    with torch.cuda.stream(beside):
        arrival.wait()
    beside.synchronize()
    arrived = time.perf_counter()
    torch.cuda.synchronize()
    return {"beside": round((arrived - began) * 1e6, 1), "busy": round((time.perf_counter() - start) * 1e6, 1)}
