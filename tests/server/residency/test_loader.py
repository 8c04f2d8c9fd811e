"""Servers of several precisions on one store."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from peltier_adapters.artifact.artifact import Artifact, read_artifact, to_bytes
from peltier_adapters.artifact.manifest import Golden
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row, RowOutput
from peltier_adapters.errors import ArtifactError
from peltier_adapters.golden import golden
from peltier_adapters.golden.golden import golden_rows
from peltier_adapters.inputs import encode_input
from peltier_adapters.residency.bank import Banks
from peltier_backbone.backbone import Backbone
from peltier_client.errors import Unavailable
from peltier_server.context import AdapterKey
from peltier_server.metrics.metrics import Metrics
from peltier_server.queue.batch import BatchBounds
from peltier_server.queue.batcher import Batcher
from peltier_server.residency.loader import StoreLoader
from peltier_server.runner import isolation
from peltier_server.runner.supervisor import WorkerSupervisor
from peltier_store.blobs.blobs import BlobNotFound, Blobs

MakeArtifact = Callable[..., bytes]


@pytest.fixture
def batcher() -> Batcher:
    return Batcher(BatchBounds(100, 1000), max_queue_tokens=1000, max_decode_rows=4)


@pytest.fixture
def loader(bert: Backbone, tmp_path: Path) -> Iterator[StoreLoader]:
    with ThreadPoolExecutor(1) as executor:
        yield StoreLoader(bert, Blobs.open(tmp_path), executor)


@pytest.fixture
def running(bert: Backbone, batcher: Batcher) -> Iterator[None]:
    """A runner that takes what the batcher gives."""
    runner = WorkerSupervisor(bert, batcher, Metrics(), num_threads=1)
    runner.start()
    yield
    batcher.close()
    runner.join(60)


@pytest.mark.usefixtures("running")
async def test_a_batch_that_runs_keeps_what_it_reads(loader, batcher, bert, make_artifact, monkeypatch):
    """Deletions and loads do not wait for the batch, and do not change its answers."""
    computing, go_on = threading.Event(), threading.Event()

    def slow(backbone: Backbone, rows: Sequence[Row], **options: Any) -> list[RowOutput]:
        computing.set()
        go_on.wait(60)
        return forward(backbone, rows, **options)

    monkeypatch.setattr(isolation, "forward", slow)
    resident = await loader.install(await loader.parse(make_artifact(bert)))
    row = Row(encode_input(bert, resident.task, "bad"), resident)
    expected = forward(bert, [row])[0].logits
    request = asyncio.ensure_future(batcher.compute([row]))
    await asyncio.to_thread(computing.wait, 60)
    del resident, row
    for seed in (1, 2):
        await loader.install(await loader.parse(make_artifact(bert, seed=seed)))
    go_on.set()
    outcome = await request
    assert torch.equal(outcome.outputs[0].logits, expected)


async def test_what_is_missing_or_broken_is_an_error_of_the_store(loader: StoreLoader) -> None:
    with pytest.raises(BlobNotFound):
        await loader.fetch(AdapterKey("default", f"sha256:{0:064}"))
    with pytest.raises(ArtifactError):
        await loader.parse(b"nonsense")


async def test_an_adapter_without_memory_may_come_back(loader, bert, make_artifact, monkeypatch):
    """It is not the adapter's fault: its size has been admitted. Any other failure is one of the server."""
    artifact = await loader.parse(make_artifact(bert))
    monkeypatch.setattr(Banks, "add", Mock(side_effect=MemoryError))
    with pytest.raises(Unavailable, match="too little memory to load this adapter"):
        await loader.install(artifact)
    monkeypatch.setattr(Banks, "add", Mock(side_effect=KeyError("a bug")))
    with pytest.raises(KeyError):
        await loader.install(artifact)


async def test_an_adapter_beyond_its_bound_is_refused_wherever_it_comes_from(bert, tmp_path, make_artifact):
    """As an upload, and from a store that was filled under a higher bound; with the part, value, limit and setting."""
    blobs, data = Blobs.open(tmp_path), make_artifact(bert, "phm", overrides={"bottleneck": "192"})
    digest = await blobs.put(data)
    refusal = r"part 'bottleneck' takes 36,864 .* 2.09 times .* at most 1 times is allowed \(max_adapter_cost\)"
    with ThreadPoolExecutor(1) as executor:
        bounded, generous = StoreLoader(bert, blobs, executor), StoreLoader(bert, blobs, executor, max_adapter_cost=3)
        with pytest.raises(ArtifactError, match=refusal):
            await bounded.parse(data)
        with pytest.raises(ArtifactError, match=refusal):
            await bounded.fetch(AdapterKey("default", digest))
        assert (await generous.fetch(AdapterKey("default", digest))).digest == digest


def _delicate(bert: Backbone, data: bytes) -> bytes:
    """A classifier with a thousand times the logits, less those of a golden example: there it is undecided in float32,
    and the least rounding decides."""
    artifact = read_artifact(data, bert)
    example = artifact.manifest.golden[1]
    tensors = {name: 1000 * tensor if name.startswith("head") else tensor for name, tensor in artifact.tensors.items()}
    tensors["head.bias"] = tensors["head.bias"] - 1000 * tensors["head.bias"].new_tensor(example.output)
    resident = Banks(bert).add(Artifact(artifact.manifest, tensors, "delicate"))
    outputs = forward(bert, golden_rows(bert, artifact.manifest, resident))
    recorded = tuple(
        Golden(input=old.input, output=tuple(new.logits.tolist()))
        for old, new in zip(artifact.manifest.golden, outputs, strict=False)
    )
    return to_bytes(artifact.manifest.model_copy(update={"golden": recorded}), tensors)


async def test_an_adapter_that_does_not_hold_in_int8_is_for_float32_servers(serve, bert, make_artifact):
    """A float32 server accepts it and answers. An int8 server on the same store refuses it by name, and serves the
    store's other adapters; as an upload, it refuses it too."""
    data = _delicate(bert, make_artifact(bert, "lora", name="delicate"))
    async with serve() as running:
        assert (await running.upload(data)).status_code == 201
        assert (await running.upload(make_artifact(bert, "lora", name="sound"))).status_code == 201
        assert (await running.predict("delicate", "bad")).status_code == 200
    async with serve(dtype="int8") as running:
        assert (await running.predict("sound", "bad")).status_code == 200
        answer = await running.predict("delicate", "bad")
        assert (answer.status_code, answer.json()["error"]["code"]) == (424, "inference_failed")
        message = answer.json()["error"]["message"]
        assert message.startswith(
            "adapter 'delicate' version 1 cannot be loaded: golden example 1: scores differ by 0."
        )
        assert message.endswith("; 0.25 is allowed in int8")
        assert (await running.upload(data, "again")).status_code == 422
        assert (await running.predict("delicate", "bad")).status_code == 424


@pytest.mark.parametrize(("dtype", "times"), [("float32", 0), ("int8", 1)])
async def test_an_adapter_from_the_store_is_proved_once(dtype, times, serve, bert, make_artifact, monkeypatch):
    """Not again after an eviction from memory; in float32 never, because the first server proved it exactly."""
    async with serve() as running:
        assert (await running.upload(make_artifact(bert, "lora", name="a"))).status_code == 201
    judged = Mock(side_effect=golden.judge_stored)
    monkeypatch.setattr("peltier_server.residency.loader.judge_stored", judged)
    async with serve(dtype=dtype, host_bytes=0) as running:
        for _ in range(2):
            answer = await running.predict("a", "bad")
            assert (answer.status_code, answer.headers["x-adapter-tier"]) == (200, "store")
            running.service.slots.device._make_room(running.service.settings.memory.device_bytes)
    assert judged.call_count == times
