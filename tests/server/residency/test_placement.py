"""Where an adapter is, in words."""

from tests.server.residency.fake_loader import FakeLoader, Holder, end, make_slots, settle


async def test_a_placement_says_why_and_what_is_next() -> None:
    """In use, next to be evicted, after others, pinned, in host memory, and in the store."""
    slots = make_slots(FakeLoader(), device_bytes=10, host_bytes=100)
    holder = Holder(slots, "a")
    await settle()

    def reason(digest: str) -> str:
        found = slots.locate(digest)
        return found.explain(found.loaded_at + 12)

    assert reason("a") == "on the device: loaded 12 s ago from the store; in use by 1 request, so it is not evicted now"
    await end([holder])
    for digest in "db":
        await slots.warm(digest, "t")
    assert reason("a").endswith("; next to be evicted when room is needed")
    assert reason("d").endswith("; to be evicted after 1 other when room is needed")
    await slots.pin("b", "t", "host")
    assert reason("b").endswith(
        "; to be evicted after 2 others when room is needed, to host memory, where it is pinned"
    )
    await slots.pin("d", "t", "device")
    assert reason("d").endswith("; pinned, so it is never evicted")
    await slots.warm("c", "t")
    assert reason("a") == "in host memory: loaded 12 s ago from the store; next to be evicted when room is needed"
    assert reason("e") == "in the store: the next request loads it"
    slots.prefetch("e", "t")
    assert reason("e") == "in the store: it is being loaded"
    await slots.close()
