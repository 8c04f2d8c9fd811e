"""Bounds of the queue, of batches, and of a stuck runner."""

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any
from unittest.mock import patch

from peltier_server.extensions.settings import SETTINGS
from peltier_server.inference import quarantine
from peltier_server.runner import isolation

from tests.server.limits.probe import Met, probe
from tests.server.limits.servers import TEXT, Servers, Small

_MOST_OF_ONE = 3 * SETTINGS["max_queue_tokens"].default // 4
_NEXT_BATCH = "other rows wait for the next batch"


@probe("tokens that wait, of all tenants")
def _(servers: Servers) -> Met:
    with servers.bert.tenant() as other, _almost_filled(servers.bert):
        return other.predict([TEXT] * 4)


@probe("tokens that wait, of one tenant", _MOST_OF_ONE)
def _(servers: Servers) -> Met:
    with _almost_filled(servers.bert):
        return servers.bert.predict([TEXT] * 3)


probe("tokens of one request", _MOST_OF_ONE)(lambda servers: servers.bert.predict(["a good film a good"] * 8))


@probe("cost of a batch, in tokens of the plain backbone")
def _(servers: Servers) -> Met:
    assert servers.bert.predict([TEXT] * 8).json()["batch"]["rows"] == 2
    return _NEXT_BATCH


@probe("expected time of a batch while several tenants are present, but at least a row or 32 tokens")
def _(servers: Servers) -> Met:
    bounds = {
        "max_shared_batch_seconds": 1e-6,
        "max_batch_tokens": 4096,
        "max_queue_tokens": 4096,
        "max_batch_rows": 128,
    }
    with servers.start("bert", max_inputs=128, **bounds) as other, other.tenant() as tenant:
        tenant.predict()
        other.predict()
        assert tenant.predict([TEXT] * 128).json()["batch"]["rows"] * 5 <= 32
    return _NEXT_BATCH


@probe("rows of a batch")
def _(servers: Servers) -> Met:
    assert servers.bert.predict(["bad"] * 6).json()["batch"]["rows"] == 3
    return _NEXT_BATCH


probe("time of a batch")(lambda servers: _of_a_stuck_runner(servers)[0])
probe("replaced runners in a row")(lambda servers: _of_a_stuck_runner(servers)[1])


@probe("failures of a version in a row", "peltier_server.inference.quarantine._MAX_FAILURES")
def _(servers: Servers) -> Met:
    with servers.bert.tenant() as other:
        return _quarantined(other)


@probe(
    "time in quarantine: 10 s at first, doubled by each trial that fails",
    "peltier_server.inference.quarantine._MAX_PAUSE_SECONDS",
)
def _(servers: Servers) -> Met:
    with servers.bert.tenant() as other:
        return _quarantined(other)


@cache
def _of_a_stuck_runner(servers: Servers) -> tuple[Met, Met]:
    """What a request in the stuck batch reads, and one after the last runner."""
    with (
        servers.start("bert", max_runner_restarts=0) as other,
        _stuck(),
        patch.object(other.service.watchdog, "_max_batch_seconds", 0.1),
    ):
        first = last = other.predict()
        while last.status_code == first.status_code:
            last = other.predict()
    return first, last


def _quarantined(server: Small) -> Met:
    def fail(*_: object, **__: object) -> None:
        raise RuntimeError

    with patch.object(isolation, "forward", fail):
        for _ in range(quarantine._MAX_FAILURES):
            assert "quarantine" not in server.predict().text
        return server.predict()


@contextmanager
def _almost_filled(server: Small) -> Iterator[None]:
    """45 of 64 tokens wait until the block ends, all of one tenant."""
    with server.held() as send:
        for count in (8, 1):
            send(server.predict, [TEXT] * count)
        while sum(server.service.batcher.queued_tokens_by_tenant().values()) < 45:
            time.sleep(0.001)
        yield


@contextmanager
def _stuck() -> Iterator[None]:
    released, forward = threading.Event(), isolation.forward

    def wait(*rows: Any, **options: Any) -> Any:
        released.wait(60)
        return forward(*rows, **options)

    with patch.object(isolation, "forward", wait):
        try:
            yield
        finally:
            released.set()


probe("products that oneDNN keeps prepared", "peltier_backbone.machine.kernel_cache._MAX_PREPARED")(
    lambda servers: _prepared("ONEDNN_PRIMITIVE_CACHE_CAPACITY", servers.bert)
)
probe("products that torch keeps prepared, of one thread", "peltier_backbone.machine.kernel_cache._MAX_PER_THREAD")(
    lambda servers: _prepared("LRU_CACHE_CAPACITY", servers.bert)
)


def _prepared(variable: str, server: Small) -> Met:
    # test_kernel_cache.py measures that it bounds memory: nothing tells what is kept.
    assert variable in os.environ
    server.predict().raise_for_status()
    return "nothing: another product is prepared again"
