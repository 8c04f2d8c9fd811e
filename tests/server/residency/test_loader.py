"""Loads from the store to the device."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import torch
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row, RowOutput
from peltier_adapters.errors import ArtifactError
from peltier_adapters.inputs import encode_input
from peltier_backbone.backbone import Backbone
from peltier_server.metrics.metrics import Metrics
from peltier_server.queue.batch_limit import BatchBounds
from peltier_server.queue.batcher import Batcher
from peltier_server.residency.lease import AdapterKey
from peltier_server.residency.loader import StoreLoader
from peltier_server.runner import bisection
from peltier_server.runner.runner import Runner
from peltier_store.blobs.blobs import BlobNotFound, Blobs


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
    runner = Runner(bert, batcher, Metrics(), num_threads=1)
    runner.start()
    yield
    batcher.close()
    runner.join(5)


@pytest.mark.usefixtures("running")
async def test_a_batch_that_runs_keeps_what_it_reads(
    loader: StoreLoader,
    batcher: Batcher,
    bert: Backbone,
    make_artifact: Callable[..., bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Deletions and loads do not wait for the batch, and do not change its answers."""
    computing, go_on = threading.Event(), threading.Event()

    def slow(backbone: Backbone, rows: Sequence[Row], **options: Any) -> list[RowOutput]:
        computing.set()
        go_on.wait(10)
        return forward(backbone, rows, **options)

    monkeypatch.setattr(bisection, "forward", slow)
    resident = await loader.install(await loader.parse(make_artifact(bert)))
    row = Row(encode_input(bert, resident.task, "bad"), resident)
    expected = forward(bert, [row])[0].logits
    request = asyncio.ensure_future(batcher.compute([row]))
    await asyncio.to_thread(computing.wait, 10)
    del resident, row
    for seed in (1, 2):
        await loader.install(await loader.parse(make_artifact(bert, seed=seed)))
    go_on.set()
    outcome = await request
    assert torch.equal(outcome.outputs[0].logits, expected)


async def test_what_is_missing_or_broken_is_an_error_of_the_store(loader: StoreLoader) -> None:
    """Each with its reason."""
    with pytest.raises(BlobNotFound):
        await loader.fetch(AdapterKey("default", f"sha256:{0:064}"))
    with pytest.raises(ArtifactError):
        await loader.parse(b"nonsense")


async def test_an_adapter_beyond_its_bound_is_refused_wherever_it_comes_from(
    bert: Backbone, tmp_path: Path, make_artifact: Callable[..., bytes]
) -> None:
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
