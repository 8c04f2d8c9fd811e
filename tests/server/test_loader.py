"""Between the store and the device."""

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from peltier_adapters.batch import forward
from peltier_adapters.errors import ArtifactError
from peltier_adapters.inputs import encode_input
from peltier_adapters.row import Row, RowOutput
from peltier_adapters.store.blobs import BlobNotFound, Blobs
from peltier_backbone.load import Backbone
from peltier_server import bisection
from peltier_server.batcher import Batcher
from peltier_server.loader import StoreLoader
from peltier_server.metrics import Metrics
from peltier_server.owned import Owned
from peltier_server.runner import Runner


@pytest.fixture
def batcher() -> Batcher:
    return Batcher(max_batch_tokens=1000, max_batch_rows=100, max_queue_tokens=1000, max_decode_rows=4)


@pytest.fixture
def loader(bert: Backbone, batcher: Batcher, tmp_path: Path) -> Iterator[StoreLoader]:
    runner = Runner(bert, batcher, Metrics(), num_threads=1)
    runner.start()
    with ThreadPoolExecutor(1) as executor:
        yield StoreLoader(bert, Blobs.open(tmp_path), runner, executor)
    batcher.close()
    runner.join(5)


async def test_a_slot_is_not_free_while_a_batch_runs(
    loader: StoreLoader,
    batcher: Batcher,
    bert: Backbone,
    make_artifact: Callable[..., bytes],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The batch may still read it; loads go on meanwhile, because they write to slots that no batch reads."""
    computing, go_on = threading.Event(), threading.Event()

    def slow(backbone: Backbone, rows: Sequence[Row], *, record_gates: bool) -> list[RowOutput]:
        computing.set()
        go_on.wait(10)
        return forward(backbone, rows, record_gates=record_gates)

    monkeypatch.setattr(bisection, "forward", slow)
    resident = await loader.install(await loader.parse(make_artifact(bert)))
    request = asyncio.ensure_future(batcher.compute([Row(encode_input(bert, resident.manifest.task, "bad"), resident)]))
    await asyncio.to_thread(computing.wait, 10)
    removal = asyncio.ensure_future(loader.remove(resident))
    other = await loader.install(await loader.parse(make_artifact(bert, seed=1)))
    assert not removal.done()
    assert other.body_slot != resident.body_slot
    go_on.set()
    await asyncio.gather(request, removal)
    reused = await loader.install(await loader.parse(make_artifact(bert, seed=2)))
    assert reused.body_slot == resident.body_slot


async def test_what_is_missing_or_broken_is_an_error_of_the_store(loader: StoreLoader) -> None:
    """Each with its reason."""
    with pytest.raises(BlobNotFound):
        await loader.fetch(Owned("default", f"sha256:{0:064}"))
    with pytest.raises(ArtifactError):
        await loader.parse(b"nonsense")
