"""The gauges for endpoint pickers, as a picker reads them."""

import asyncio
import re
import signal
import socket
from collections.abc import Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from random import Random
from typing import Any

import httpx2
import pytest
from peltier_server.extensions.picker.server import PATH, RoutingServer
from peltier_server.extensions.settings import load_settings
from peltier_server.http.lifecycle import Lifecycle

from tests.server.conftest import Running, until
from tests.support.endpoint_picker import VLLM, Endpoint
from tests.support.server_process import Server

MakeArtifact = Callable[..., bytes]


@asynccontextmanager
async def listening(lifecycle, **options):
    """A server of gauges, and its address."""
    server = RoutingServer(lifecycle, load_settings(options))
    with socket.create_server(("127.0.0.1", 0)) as listener:
        server.start(listener)
        yield server, listener.getsockname()
        await server.close()
    await until(lambda: not server.connections)


@asynccontextmanager
async def picker_of(lifecycle, **options):
    async with (
        listening(lifecycle, **options) as (_, (host, port)),
        httpx2.AsyncClient(base_url=f"http://{host}:{port}", timeout=60) as client,
    ):
        yield client


async def read(running: Running, **options: Any) -> Endpoint:
    """What a picker knows of the server."""
    async with picker_of(running.app.state.lifecycle, **options) as client:
        answer = (await client.get(PATH)).raise_for_status()
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    return Endpoint.read(answer.text)


async def test_an_idle_server_has_room_for_an_adapter(running: Running) -> None:
    """A picker scores it as one that can load the adapter."""
    endpoint = await read(running)
    assert endpoint == Endpoint(0, 0, 0.0, max_active_models=1)
    assert endpoint.lora_affinity("demo") == 0.8


async def test_adapters_on_the_device_are_named_as_requests_name_them(running, bert, make_artifact):
    """By the bare name, if it may mean this version, and by the version; a public one by its tenant too."""
    for seed in (1, 2):
        (await running.upload(make_artifact(bert, "bitfit", seed=seed), "mood")).raise_for_status()
    endpoint = await read(running)
    assert endpoint.active_models == {"mood", "mood@1", "mood@2"}
    assert endpoint.lora_affinity("mood") == endpoint.lora_affinity("mood@1") == 1.0
    (await running.client.patch("/v1/adapters/mood", json={"public": True})).raise_for_status()
    assert (await read(running)).active_models >= {"default:mood", "default:mood@1"}
    (await running.client.delete("/v1/adapters/mood")).raise_for_status()
    assert (await read(running)).active_models == set()


async def test_the_most_recently_used_names_are_listed(running, bert, make_artifact):
    """At most as many as the setting says. A device with room shows room, however many it has."""
    for name in ("one", "two", "three"):
        (await running.upload(make_artifact(bert, "bitfit", seed=len(name) + ord(name[0])), name)).raise_for_status()
    await running.predict("one", "a good film")
    endpoint = await read(running, max_routing_names=3)
    assert endpoint.active_models == {"one", "one@1", "three"}
    assert endpoint.max_active_models > 3


async def test_waiting_and_running_rows_are_counted(running, hold_runner, bert, make_artifact):
    """Rows in the queue while the runner is busy; their adapter is leased, so its bytes are in use."""
    (await running.upload(make_artifact(bert, "bitfit"), "demo")).raise_for_status()
    await until(lambda: running.service.batcher.running_rows == 0)  # the golden examples
    async with hold_runner():
        asking = asyncio.create_task(running.predict("demo", ["a good film"] * 5))
        await until(lambda: running.service.batcher.queued_rows == 5)
        endpoint = await read(running)
        # The runner has taken one row of another request.
        assert (endpoint.waiting_queue_size, endpoint.running_requests_size) == (5, 1)
        assert 0 < endpoint.kv_cache_usage < 1
    assert (await asking).status_code == 200
    await until(lambda: running.service.batcher.running_rows == 0)
    assert await read(running) == Endpoint(
        0, 0, 0.0, endpoint.active_models, max_active_models=endpoint.max_active_models
    )


async def test_an_adapter_that_is_loaded_is_waiting(running, bert, make_artifact, monkeypatch):
    """From the request until its weights are on the device. The request counts as waiting."""
    (await running.upload(make_artifact(bert, "bitfit"), "demo")).raise_for_status()
    slots, released = running.service.slots, asyncio.Event()
    (entry,) = running.service.catalog.entries()
    slots.retire(entry.owned)
    install = slots._loader.install

    async def wait(artifact: Any) -> Any:
        await released.wait()
        return await install(artifact)

    monkeypatch.setattr(slots._loader, "install", wait)
    asking = asyncio.create_task(running.predict("demo", "a good film"))
    await until(lambda: slots.num_loading)
    endpoint = await read(running)
    assert (endpoint.active_models, endpoint.waiting_models) == (set(), {"demo", "demo@1"})
    assert endpoint.waiting_queue_size == 1
    released.set()
    assert (await asking).status_code == 200
    assert (await read(running)).active_models == {"demo", "demo@1"}


async def test_the_gauges_can_be_renamed(running: Running) -> None:
    """The picker's configuration names them."""
    async with picker_of(running.app.state.lifecycle, routing_prefix="peltier_") as client:
        page = (await client.get(PATH)).text
    names = {spec: name.replace("vllm:", "peltier_") for spec, name in VLLM.items()}
    assert Endpoint.read(page, names) == await read(running)
    assert "vllm" not in page


async def test_nothing_else_is_served(running: Running) -> None:
    """No other path, no other method, and no page before the server is ready."""
    async with picker_of(running.app.state.lifecycle) as client:
        for path in ("/metrics", "/v1/adapters", "/", f"{PATH}/"):
            answer = await client.get(path)
            assert (answer.status_code, answer.json()["error"]["message"]) == (404, f"this address serves {PATH} only")
        answer = await client.post(PATH, json={"a": 1})
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET")
    async with picker_of(Lifecycle()) as client:
        answer = await client.get(PATH)
        assert (answer.status_code, answer.json()["error"]["code"]) == (503, "not_ready")


_GET = f"GET {PATH} HTTP/1.1\r\n\r\n".encode()


@pytest.mark.parametrize(
    ("sent", "stall_seconds"),
    [
        (b"no http\r\n\r\n", 60),
        (b"GET / HTTP/1.1\r\na: " + b"b" * 20_000, 60),
        (_GET * 2, 60),
        (b"GET / HTTP/1.1\r\n", 0.05),
    ],
    ids=["not HTTP", "too large", "two requests at once", "too late"],
)
async def test_a_connection_that_breaks_a_rule_is_closed(sent: bytes, stall_seconds: float) -> None:
    async with listening(Lifecycle(), stall_seconds=stall_seconds) as (server, address):
        reader, writer = await asyncio.open_connection(*address)
        writer.write(sent)
        async with asyncio.timeout(60):
            with suppress(ConnectionResetError):
                await reader.read()
        assert not server.connections
        writer.close()
        reader, writer = await asyncio.open_connection(*address)
        writer.write(_GET.replace(b"1.1", b"1.0"))
        assert (await reader.read()).startswith(b"HTTP/1.1 503 Service Unavailable\r\n")
        writer.close()


async def test_connections_are_bounded() -> None:
    """A new one takes the place of that which has had no request for the longest time."""
    async with listening(Lifecycle()) as (server, address):
        streams = [await asyncio.open_connection(*address) for _ in range(64)]
        streams[0][1].write(_GET)
        async with asyncio.timeout(60):
            assert await streams[0][0].read(12) == b"HTTP/1.1 503"
            streams.append(await asyncio.open_connection(*address))
            with suppress(ConnectionResetError):
                assert await streams[1][0].read() == b""
            streams[-1][1].write(_GET)
            assert await streams[-1][0].read(12) == b"HTTP/1.1 503"
        assert len(server.connections) == 64
        for _, writer in streams:
            writer.close()


async def test_a_picker_keeps_each_adapter_on_one_of_three_replicas(serve, bert, make_artifact):
    """It asks the replica with the highest score, and any of those with equal scores: six adapters in 60 requests are
    loaded six times in all."""
    names = [f"task-{number}" for number in range(6)]
    async with serve() as publishing:
        for number, name in enumerate(names):
            data = make_artifact(bert, "bitfit", seed=number, task_type="embedding")
            (await publishing.upload(data, name)).raise_for_status()
    random = Random(0)
    async with AsyncExitStack() as opened:
        replicas = [await opened.enter_async_context(serve()) for _ in range(3)]
        for name in names * 10:
            scores = [(await read(replica)).lora_affinity(name) for replica in replicas]
            best = random.choice([one for one, score in zip(replicas, scores, strict=True) if score == max(scores)])
            # The picker reads the field `model` on this route: requesthandling/parsers/openai/openai.go, Claims.
            answer = await best.client.post("/v1/embeddings", json={"model": name, "input": "a good film"})
            answer.raise_for_status()
        loaded = [len(list(replica.service.slots.device.loaded())) for replica in replicas]
    assert sum(loaded) == len(names)
    assert sum(number > 0 for number in loaded) > 1


def test_the_route_has_a_socket_of_its_own(bert_directory: Path, tmp_path: Path) -> None:
    """On loopback, without a key, beside a server that needs one; a signal ends both."""
    flags = ("--backbone", str(bert_directory), "--store", str(tmp_path / "store"), "--routing-port", "0")
    server = Server(tmp_path / "log", *flags, "--lame-duck-seconds", "0", PELTIER_ADMIN_KEY="plt_" + "k" * 32)
    try:
        server.wait_until_ready()
        found = re.search(rf"endpoint pickers read (http://127\.0\.0\.1:\d+){PATH}\n", server.log)
        assert found is not None
        assert server.client.get(PATH).status_code == 401
        with httpx2.Client(base_url=found[1], timeout=60) as picker:
            first, second = (Endpoint.read(picker.get(PATH).raise_for_status().text) for _ in range(2))
            assert first == second
            server.process.send_signal(signal.SIGTERM)
            assert server.process.wait(60) == 0
        assert "shutdown complete" in server.log
    finally:
        server.end()
