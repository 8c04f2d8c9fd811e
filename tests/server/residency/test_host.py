"""The host tier."""

from dataclasses import dataclass

from peltier_server.metrics.metrics import Metrics
from peltier_server.residency.tiers import HostCache


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
