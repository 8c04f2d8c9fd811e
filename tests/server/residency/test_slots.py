"""Leases of the device tier: loads, evictions, deletions and prefetches."""

import asyncio
import gc
from dataclasses import dataclass

import pytest
from peltier_client.errors import TooLarge
from peltier_server.metrics.metrics import Metrics
from peltier_server.residency.slots import Slots
from peltier_server.residency.tiers import HostCache, MemoryBudget

from tests.server.residency.fake_loader import (
    SIZES,
    FakeArtifact,
    FakeLoader,
    FakeResident,
    Holder,
    LoadFailed,
    end,
    make_slots,
    settle,
)


async def test_loads_of_one_adapter_are_one_load() -> None:
    loader = FakeLoader()
    slots = make_slots(loader)

    async def use() -> FakeResident:
        async with slots.lease("a", "t") as lease:
            return lease.resident

    residents = await asyncio.gather(*(use() for _ in range(8)))
    assert len(set(residents)) == 1
    assert loader.fetches == ["a"]


async def test_a_lease_says_where_the_adapter_was() -> None:
    slots = make_slots(FakeLoader(), device_bytes=5, host_bytes=100)
    tiers = []
    for digest in "aaba":
        async with slots.lease(digest, "t") as lease:
            tiers.append(lease.tier)
    assert tiers == ["store", "device", "store", "host"]


async def test_the_least_recently_used_goes_first() -> None:
    loader = FakeLoader()
    slots = make_slots(loader, device_bytes=10)
    for digest in "abad":  # 3 + 4, then 2; b is now the oldest
        async with slots.lease(digest, "t"):
            pass
    async with slots.lease("c", "t"):
        assert {resident.digest for resident in loader.installed} == {"a", "c", "d"}


async def test_adapters_in_use_are_listed_before_idle_ones() -> None:
    """The idle ones by their last use. The free room is in adapters of the mean size."""
    slots = make_slots(FakeLoader(), device_bytes=14)
    assert slots.device.num_free == 1
    for digest in "abda":
        async with slots.lease(digest, "t"):
            pass
    holder = Holder(slots, "b")
    await settle()
    assert list(slots.device.loaded()) == ["b", "a", "d"]
    assert slots.device.leased_share == SIZES["b"] / 14
    assert slots.device.num_free == 1
    await end([holder], slots)
    assert slots.device.leased_share == 0


async def test_what_the_device_can_never_hold_is_refused() -> None:
    with pytest.raises(TooLarge, match="the adapter has 7 bytes; this server keeps 5 on the device"):
        async with make_slots(FakeLoader(), device_bytes=5).lease("e", "t"):
            pass


async def test_a_failed_load_is_tried_again() -> None:
    loader = FakeLoader(failing={"a"})
    slots = make_slots(loader)
    with pytest.raises(LoadFailed):
        async with slots.lease("a", "t"):
            pass
    (failures,) = slots._metrics.load_failures.collect()
    assert failures.samples[0].value == 1
    loader.failing.clear()
    async with slots.lease("a", "t") as lease:
        assert lease.tier == "store"
    assert slots.device.used_bytes == 3


async def test_a_lease_of_a_deleted_adapter_leaves_its_successor_evictable() -> None:
    """A caller that has waited for the deleted adapter gets it. The same bytes, published again, are a separate idle
    resident."""
    slots = make_slots(FakeLoader(), device_bytes=13)
    first, small, large = (Holder(slots, digest, tenant) for digest, tenant in ("dt", "av", "cv"))
    await settle()
    waiting = Holder(slots, "d", "v")  # its tenant has its share
    await settle()
    slots.retire("d")
    successor = Holder(slots, "d", "u")
    await settle()
    assert (waiting.waits, successor.holds) == (True, True)
    await end([successor, small])
    assert waiting.holds
    await end([first, large, waiting])
    both = [Holder(slots, digest, tenant) for digest, tenant in ("et", "cu")]
    await settle()
    assert [holder.holds for holder in both] == [True, True]
    await end(both, slots)


async def test_the_last_caller_and_the_end_of_the_load_free_once() -> None:
    """The adapter is deleted while it loads, and its only caller is cancelled when the load ends, in one turn of the
    event loop."""

    class Meeting(FakeLoader):
        async def install(self, artifact: FakeArtifact) -> FakeResident:
            resident = await super().install(artifact)
            slots.retire("a")
            holder.task.cancel()
            return resident

    loader = Meeting()
    slots = make_slots(loader)
    holder = Holder(slots, "a")
    await asyncio.wait([holder.task])
    await settle()
    holder.task = asyncio.current_task()  # the traceback of the other names what it waited for
    gc.collect()
    assert not loader.installed
    assert slots.device.used_bytes == 0


async def test_a_deleted_adapter_leaves_after_its_last_lease() -> None:
    loader = FakeLoader()
    slots = make_slots(loader)
    async with slots.lease("a", "t"):
        slots.retire("a")
        await settle()
        assert len(loader.installed) == 1
        assert slots.device.used_bytes == 3
    assert not loader.installed
    assert slots.device.used_bytes == 0


async def test_a_load_begins_before_its_lease() -> None:
    """A prefetch loads while a request is still being read; the lease names the tier before the prefetch."""
    loader = FakeLoader()
    slots = make_slots(loader)
    slots.prefetch("a", "t")
    slots.prefetch("a", "t")
    await settle()
    assert {resident.digest for resident in loader.installed} == {"a"}
    async with slots.lease("a", "t") as lease:
        assert lease.tier == "store"
    async with slots.lease("a", "t") as lease:
        assert lease.tier == "device"
    assert loader.fetches == ["a"]


async def test_what_nobody_leases_evicts_nobody() -> None:
    """A prefetch evicts no other adapter from the device; it keeps the fetched adapter in the host tier."""
    loader = FakeLoader()
    slots = make_slots(loader, device_bytes=5)
    async with slots.lease("b", "t"):
        pass
    slots.prefetch("c", "t")
    await settle()
    assert {resident.digest for resident in loader.installed} == {"b"}
    async with slots.lease("c", "t") as lease:
        assert lease.tier == "host"
    assert loader.fetches == ["b", "c"]


async def test_gauges_tell_what_the_device_holds() -> None:
    metrics = Metrics()
    slots: Slots = Slots(FakeLoader(), MemoryBudget(10, 0), metrics)

    def gauges() -> tuple[float, float]:
        adapters, nbytes = metrics.adapters.labels("device"), metrics.adapter_bytes.labels("device")
        return adapters._value.get(), nbytes._value.get()

    for digest in "abc":  # 3 + 4, then 5 in place of the first
        async with slots.lease(digest, "t"):
            pass
    assert gauges() == (2, 9)
    async with slots.lease("b", "t"):
        slots.retire("b")
        assert gauges() == (2, 9)
    assert gauges() == (1, 5)


@pytest.mark.parametrize("given", [False, True])
async def test_what_is_deleted_while_it_loads_does_not_come_back(given: bool) -> None:
    """Neither the load nor an upload keeps it in the host tier: the next request reads the store."""
    loader = FakeLoader()
    slots = make_slots(loader)

    async def use() -> str:
        async with slots.lease("a", "t", FakeArtifact("a", 3) if given else None) as lease:
            return lease.tier

    first = asyncio.ensure_future(use())
    await asyncio.sleep(0)
    slots.retire("a")
    await first
    await settle()
    async with slots.lease("a", "t") as lease:
        assert lease.tier == "store"
    assert loader.fetches[-1:] == ["a"]


async def test_a_pinned_adapter_is_not_evicted() -> None:
    loader = FakeLoader()
    slots = make_slots(loader)
    await slots.pin("a", "t")
    for digest in "eb":  # 3 + 7, then 4 in place of the second
        await slots.warm(digest, "t")
    await settle()
    assert {resident.digest for resident in loader.installed} == {"a", "b"}


@dataclass
class Thing:
    nbytes: int


def make_cache(max_bytes: int) -> HostCache:
    return HostCache(max_bytes, Metrics())


def test_the_least_recently_used_leaves_first() -> None:
    cache = make_cache(10)
    for key in "ab":
        cache.put(key, Thing(4))
    cache.get("a")
    cache.put("c", Thing(4))
    assert [key for key in "abc" if cache.get(key)] == ["a", "c"]
    assert cache.nbytes == 8


def test_what_is_larger_than_the_cache_evicts_nothing() -> None:
    cache = make_cache(10)
    cache.put("a", Thing(4))
    cache.put("giant", Thing(11))
    assert cache.get("a")
    assert not cache.get("giant")


def test_the_cache_is_filled_to_its_last_byte() -> None:
    """An adapter that just fits evicts none; one byte more evicts only as many as necessary."""
    cache = make_cache(10)
    cache.put("all", Thing(10))
    assert cache.nbytes == 10
    cache.drop("all")
    for key, nbytes in (("a", 3), ("b", 3), ("c", 4)):
        cache.put(key, Thing(nbytes))
    assert (len(cache), cache.nbytes) == (3, 10)
    cache.put("d", Thing(4))
    assert ([key for key in "abcd" if cache.get(key)], cache.nbytes) == (["c", "d"], 8)


def test_each_eviction_is_counted_and_nothing_else() -> None:
    """Neither a deletion, nor what is put again, nor what is too large to be kept."""
    metrics = Metrics()
    cache: HostCache = HostCache(10, metrics)
    evictions = metrics.evictions.labels("host")
    for key in "ab":
        cache.put(key, Thing(4))
    cache.put("b", Thing(4))
    cache.put("giant", Thing(11))
    cache.drop("a")
    assert evictions._value.get() == 0
    cache.put("c", Thing(4))
    cache.put("wide", Thing(9))
    assert evictions._value.get() == 2
