"""A server whose bytes are in a bucket, over the real S3 protocol."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from urllib.parse import parse_qsl, urlsplit

import httpx2
import huggingface_hub
from peltier_server.app import create_app
from peltier_server.extensions.settings import Settings, load_settings
from peltier_store.blobs.blobs import Blobs, digest_of
from peltier_store.blobs.location import locate

from tests.server.conftest import Running, make_client, until


async def started(settings: Settings, work: Callable[[Running], Awaitable[None]]) -> None:
    app = create_app(settings)
    async with app.router.lifespan_context(app), make_client(app) as client:
        await app.state.lifecycle.settled()
        await work(Running(app, client, app.state.lifecycle.service()))


async def test_a_server_keeps_its_adapters_in_a_bucket(tmp_path, s3_store, bert, bert_directory, make_artifact):
    """Examples and uploads are stored there, and a server started anew answers and downloads from there, and does not
    bring back an example that was deleted."""
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "demo.safetensors").write_bytes(make_artifact(bert))
    settings = load_settings(
        {"backbone": str(bert_directory), "device": "cpu", "threads": 1, "publish": tmp_path / "examples"}
        | {"store": s3_store, "registry": f"sqlite+aiosqlite:///{tmp_path / 'registry.db'}"}
    )
    data, scores = make_artifact(bert, name="kept", seed=1), []

    async def fill(running: Running) -> None:
        assert (await running.upload(data)).status_code == 201
        scores.append(await running.scores("kept", "a good film"))
        assert (await running.client.delete("/v1/adapters/demo")).status_code == 204

    async def look(running: Running) -> None:
        scores.append(await running.scores("kept", "a good film"))
        assert (await running.client.get("/v1/adapters/kept/versions/1/artifact")).content == data
        assert (await running.client.get("/v1/adapters/demo")).status_code == 404

    await started(settings, fill)
    await started(settings, look)
    assert max(abs(one - other) for one, other in zip(*scores, strict=True)) < 1e-6
    assert digest_of(data) in {entry.digest async for entry in Blobs.open(s3_store).entries()}


class Gate:
    """A proxy of an S3 server. While it is closed, requests for the bytes of objects wait in it; others pass."""

    def __init__(self) -> None:
        self.open = asyncio.Event()
        self.open.set()
        self.waiting = set[str]()
        self._target = ("", 0)
        self._connections = set[asyncio.Task[None]]()

    @asynccontextmanager
    async def before(self, store: str) -> AsyncIterator[str]:
        """The URL of a blob store through the proxy."""
        endpoint = httpx2.URL(dict(parse_qsl(urlsplit(store).query))["endpoint"])
        assert endpoint.port is not None
        self._target = endpoint.host, endpoint.port
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        try:
            yield store.replace(f":{endpoint.port}", f":{port}")
        finally:
            server.close()
            for one in self._connections:
                one.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        answers, requests = await asyncio.open_connection(*self._target)
        try:
            async with asyncio.TaskGroup() as both:
                both.create_task(self._pass(reader, requests))
                both.create_task(self._pass(answers, writer))
        finally:
            self._connections.discard(task)
            writer.close()
            requests.close()

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65_536):
            method, _, path = data.partition(b"\r\n")[0].decode("latin-1").partition(" ")
            if method == "GET" and "list-type" not in path and not self.open.is_set():
                self.waiting.add(path)
                await self.open.wait()
            writer.write(data)
            await writer.drain()
        writer.close()


async def test_adapters_load_from_a_slow_bucket_side_by_side(tmp_path, s3_store, bert, bert_directory, make_artifact):
    gate, names = Gate(), ("warm", "cold", "colder")

    async def fill(running: Running) -> None:
        for seed, name in enumerate(names):
            assert (await running.upload(make_artifact(bert, name=name, seed=seed))).status_code == 201

    async def look(running: Running) -> None:
        assert (await running.predict("warm", "a good film")).status_code == 200
        catalog = running.service.catalog
        cold = [catalog.find("default", name).newest.digest.removeprefix("sha256:") for name in names[1:]]
        gate.open.clear()
        async with asyncio.TaskGroup() as calls:
            loading = [calls.create_task(running.predict(name, "a good film")) for name in names[1:]]
            await until(lambda: all(any(digest in path for path in gate.waiting) for digest in cold))
            for text in ("a good film", "bad"):
                answer = await running.predict("warm", text)
                assert (answer.status_code, answer.headers["x-adapter-tier"]) == (200, "device")
            assert not any(one.done() for one in loading)
            gate.open.set()
        assert [one.result().status_code for one in loading] == [200, 200]
        assert {one.result().headers["x-adapter-tier"] for one in loading} == {"store"}

    async with gate.before(s3_store) as store:
        settings = load_settings(
            {"backbone": str(bert_directory), "device": "cpu", "threads": 1, "store": store}
            | {"registry": f"sqlite+aiosqlite:///{tmp_path / 'registry.db'}"}
        )
        await started(settings, fill)
        await started(settings, look)


async def test_a_server_publishes_the_artifacts_of_a_bucket(tmp_path, s3_store, bert, bert_directory, make_artifact):
    """At its first start, with the checks of an upload: one that is too large or refused is left out."""
    source = locate(s3_store).store
    source.put("demo.safetensors", make_artifact(bert))
    source.put("bad.safetensors", b"no artifact")
    source.put("large.safetensors", make_artifact(bert, name="large") + bytes(100_000))
    settings = load_settings(
        {"backbone": str(bert_directory), "device": "cpu", "threads": 1, "store": tmp_path / "store"}
        | {"publish": s3_store, "max_artifact_bytes": 100_000}
    )

    async def look(running: Running) -> None:
        listed = (await running.client.get("/v1/adapters")).json()["adapters"]
        assert [adapter["name"] for adapter in listed] == ["demo"]
        assert (await running.client.get("/v1/adapters/demo/versions/1/artifact")).content == make_artifact(bert)

    await started(settings, look)


async def test_a_server_starts_without_a_source_that_does_not_answer(tmp_path, bert_directory, monkeypatch, caplog):
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    settings = load_settings(
        {"backbone": str(bert_directory), "device": "cpu", "threads": 1, "store": tmp_path / "store"}
        | {"publish": "hf://acme/demo"}
    )

    async def look(running: Running) -> None:
        assert (await running.client.get("/ready")).status_code == 200

    await started(settings, look)
    assert "the examples of hf://acme/demo are not published: hf://acme/demo cannot be read" in caplog.text
