"""Real adapters of many signatures on a small device, for any sequence of predictions, deletions and replacements."""

import asyncio
import gc
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from mmap import mmap
from pathlib import Path
from weakref import WeakSet

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule, run_state_machine_as_test
from peltier_adapters.artifact import weights
from peltier_adapters.artifact.artifact import Artifact, read_artifact
from peltier_adapters.artifact.weights import Memory, Pages
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.residency.bank import Banks, Resident
from peltier_adapters.residency.served import device_bytes
from peltier_backbone.backbone import Backbone
from peltier_server.context import AdapterKey
from peltier_server.metrics.metrics import Metrics
from peltier_server.residency.loader import StoreLoader
from peltier_server.residency.slots import Slots
from peltier_server.residency.tiers import MemoryBudget
from peltier_store.blobs.blobs import Blobs
from torch import Tensor

from tests.server.conftest import until

TEXT = "a good film"


PRESETS = ("compacter", "lora", "unipelt-apl", "prefix")
NAMES = st.sampled_from([f"{preset}-{number}" for preset in PRESETS for number in range(2)])


class Store:
    """Two versions of each name in a store, and what they answer alone."""

    def __init__(self, backbone: Backbone, make_artifact: Callable[..., bytes], directory: Path) -> None:
        self.backbone = backbone
        self.blobs = Blobs.open(directory)
        self.encoded = backbone.tokenizer.encode(TEXT)
        self.digests: dict[str, list[str]] = {}
        self.answers: dict[str, Tensor] = {}
        self.nbytes = 0
        self._device_bytes: list[int] = []
        for preset in PRESETS:
            for number in range(2):
                versions = [make_artifact(backbone, preset, seed=2 * number + version) for version in range(2)]
                self.digests[f"{preset}-{number}"] = [self._put(data) for data in versions]

    @property
    def largest_three(self) -> int:
        """Device bytes of the largest adapters of three names."""
        return sum(sorted(self._device_bytes[::2])[-3:])

    def _put(self, data: bytes) -> str:
        digest = asyncio.run(self.blobs.put(data))
        artifact = read_artifact(data, self.backbone)
        self.nbytes += artifact.nbytes
        self._device_bytes.append(device_bytes(artifact.manifest.parts, self.backbone))
        self.answers[digest] = forward(self.backbone, [Row(self.encoded, Banks(self.backbone).add(artifact))])[0].logits
        return digest


class Machine(RuleBasedStateMachine):
    """Callers lease, prepare a batch and compute it in a thread while others load, evict, delete and replace."""

    def __init__(self, store: Store, executor: ThreadPoolExecutor) -> None:
        super().__init__()
        self.store = store
        self.current = dict.fromkeys(store.digests, 0)
        # One tenant may lease any three adapters of it, and it does not hold one version of each.
        self.device_bytes = 4 * store.largest_three // 3 + 1
        self.loop = asyncio.new_event_loop()
        self.slots = self.loop.run_until_complete(self._make(StoreLoader(store.backbone, store.blobs, executor)))

    async def _make(self, loader: StoreLoader) -> Slots:
        return Slots(loader, MemoryBudget(self.device_bytes, self.device_bytes // 2), Metrics())

    def owned(self, name: str) -> AdapterKey:
        return AdapterKey("default", self.store.digests[name][self.current[name]])

    async def predict(self, name: str, deletes: bool) -> None:
        owned = self.owned(name)
        async with self.slots.lease(owned, "default") as lease:
            row = Row(self.store.encoded, lease.resident)
            computing = asyncio.create_task(asyncio.to_thread(forward, self.store.backbone, [row]))
            if deletes:
                self.slots.retire(owned)
            (output,) = await computing
        assert torch.equal(output.logits, self.store.answers[owned.digest])

    @rule(names=st.lists(NAMES, min_size=1, max_size=4), deletes=st.booleans())
    def predict_at_once(self, names: list[str], deletes: bool) -> None:
        async def act() -> None:
            async with asyncio.timeout(120):
                await asyncio.gather(*(self.predict(name, deletes) for name in names))

        self.loop.run_until_complete(act())

    @rule(names=st.lists(NAMES, min_size=2, max_size=3, unique=True))
    def predict_in_one_batch(self, names: list[str]) -> None:
        async def lease(rest: list[str], rows: list[Row]) -> None:
            if rest:
                async with self.slots.lease(self.owned(rest[0]), "default") as held:
                    await lease(rest[1:], [*rows, Row(self.store.encoded, held.resident)])
                return
            outputs = forward(self.store.backbone, rows)
            for name, output in zip(names, outputs, strict=True):
                expected = self.store.answers[self.owned(name).digest]
                torch.testing.assert_close(output.logits, expected, rtol=1e-5, atol=1e-5)

        self.loop.run_until_complete(asyncio.wait_for(lease(names, []), 120))

    @rule(name=NAMES)
    def replace(self, name: str) -> None:
        async def act() -> None:
            before = self.owned(name)
            self.current[name] ^= 1
            self.slots.retire(before)

        self.loop.run_until_complete(act())

    @rule(name=NAMES)
    def prefetch(self, name: str) -> None:
        async def act() -> None:
            self.slots.prefetch(self.owned(name), "default")

        self.loop.run_until_complete(act())

    @invariant()
    def the_device_is_never_overfull(self) -> None:
        assert self.slots.device.used_bytes <= self.device_bytes

    def teardown(self) -> None:
        try:
            self.loop.run_until_complete(asyncio.wait_for(self.slots.close(), 120))
        finally:
            self.loop.close()


@pytest.fixture(scope="module")
def store(bert: Backbone, make_artifact: Callable[..., bytes], tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(bert, make_artifact, tmp_path_factory.mktemp("store"))


@pytest.mark.hypothesis  # it draws within
def test_every_answer_is_its_own_adapters(store: Store) -> None:
    """While others are loaded, evicted, deleted or replaced, and with any rows in the batch."""
    with ThreadPoolExecutor(4) as executor:
        run_state_machine_as_test(
            lambda: Machine(store, executor),
            settings=settings(max_examples=settings().max_examples // 10, stateful_step_count=12),
        )


class WatchedLoader(StoreLoader):
    """Knows how many bytes the residents that are alive take, and the most that they ever took."""

    def __init__(self, store: Store, executor: ThreadPoolExecutor) -> None:
        super().__init__(store.backbone, store.blobs, executor)
        self._residents: WeakSet[Resident] = WeakSet()
        self.most_bytes = 0

    @property
    def held_bytes(self) -> int:
        return sum(resident.nbytes for resident in self._residents)

    async def install(self, artifact: Artifact) -> Resident:
        resident = await super().install(artifact)
        self._residents.add(resident)
        self.most_bytes = max(self.most_bytes, self.held_bytes)
        return resident


class WatchedPages(Pages):
    """Keeps nothing, and knows how many bytes of memory are in use."""

    def __init__(self) -> None:
        super().__init__(max_kept_bytes=0)
        self.taken_bytes = 0

    def take(self, num_bytes: int) -> Memory:
        memory = super().take(num_bytes)
        with self._lock:
            self.taken_bytes += len(memory)
        return memory

    def _give_back(self, pages: mmap) -> None:
        super()._give_back(pages)
        with self._lock:
            self.taken_bytes -= len(pages)


@contextmanager
def watched_pages() -> Iterator[WatchedPages]:
    """The pages of all weights meanwhile, while nothing collects cycles: a server would be long in doing so."""
    gc.disable()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(weights, "_PAGES", WatchedPages())
            yield weights._PAGES
    finally:
        gc.enable()


@given(groups=st.lists(st.lists(st.integers(0, 4 * len(PRESETS) - 1), min_size=1, max_size=6), min_size=1, max_size=8))
@settings(max_examples=settings().max_examples // 3)
def test_what_is_evicted_is_freed(store: Store, groups: list[list[int]]) -> None:
    """The device never holds more than its budget, the tiers together no more than both, and nothing once all are
    deleted."""
    device_bytes, host_bytes = store.nbytes // 5, store.nbytes // 10
    owned = [AdapterKey("default", digest) for digests in store.digests.values() for digest in digests]

    async def use(slots: Slots, number: int) -> None:
        async with slots.lease(owned[number], "default"):
            await asyncio.sleep(0)

    async def act(loader: WatchedLoader, pages: WatchedPages) -> None:
        slots = Slots(loader, MemoryBudget(device_bytes, host_bytes), Metrics())
        for group in groups:
            await asyncio.gather(*(use(slots, number) for number in group))
            assert loader.held_bytes == slots.device.used_bytes
            await until(lambda: pages.taken_bytes <= device_bytes + host_bytes)
        for one in owned:
            slots.retire(one)
        assert loader.most_bytes <= device_bytes
        await until(lambda: pages.taken_bytes == 0)

    with ThreadPoolExecutor(1) as executor, watched_pages() as pages:
        asyncio.run(act(WatchedLoader(store, executor), pages))
