"""Batches and their queue, on both databases."""

from datetime import timedelta

import pytest
from peltier_client.protocol.administration import TenantQuotas
from peltier_store.blobs.blobs import digest_of
from peltier_store.registry.errors import BatchUnknown, FileUnknown, LeaseLost, QuotaReached, RegistryConflict
from peltier_store.registry.extensions import batches, queue
from peltier_store.registry.extensions.queue import create_holder_name
from peltier_store.registry.extensions.queue_records import BatchDraft, BatchPart, NewFile, StoredBatch
from peltier_store.registry.extensions.registry import Registry

from tests.adapters_store.store.registry.conftest import add_file


async def create(registry: Registry, tenant: str = "acme") -> StoredBatch:
    file = await add_file(registry, tenant=tenant)
    draft = BatchDraft("/v1/embeddings", file.id, "24h", {"run": "é"})
    return await registry.batches.create(tenant, draft, actor="ann")


async def claimed(registry: Registry, replica: str = "r1") -> StoredBatch:
    batch = await registry.batches.claim(replica)
    assert batch is not None
    return batch


async def add_part(registry, batch, first, completed, failed, replica="r1"):
    data = f"{batch.id}{first}".encode()
    reservation = await registry.reserve(digest_of(data))
    part = BatchPart(first, reservation.digest, len(data), completed, failed)
    await registry.batches.add_part(batch.id, replica, reservation, part)


async def test_a_batch_goes_from_part_to_part(registry: Registry) -> None:
    """Each turn ends the claim; the last part begins the end, in which the files replace the parts."""
    batch = await create(registry)
    await registry.batches.begin((await claimed(registry)).id, "r1", num_lines=5)
    for first, completed, failed in ((0, 2, 1), (3, 2, 0)):
        assert (await claimed(registry)).state == "in_progress"
        await add_part(registry, batch, first, completed, failed)
    last = await claimed(registry, "r2")
    assert (last.state, last.num_completed, last.num_failed, last.attempts) == ("finalizing", 4, 1, 1)
    parts = await registry.batches.parts(batch.id)
    assert [(part.first_line, part.num_completed, part.num_failed) for part in parts] == [(0, 2, 1), (3, 2, 0)]
    kept = {part.digest for part in parts}
    assert await registry.begin_collection(kept) == set()
    output = NewFile(await registry.reserve(digest_of(b"answers")), "out.jsonl", 7, 4)
    await registry.batches.finish(batch.id, "r2", "completed", output=output)
    found = await registry.batches.find("acme", batch.id)
    assert (found.state, found.holder, found.error_file_id, found.num_failed) == ("completed", None, None, 1)
    assert found.finished_at is not None
    file = await registry.files.find("acme", found.output_file_id or "")
    assert (file.purpose, file.num_rows, file.created_by) == ("batch_output", 4, "ann")
    assert await registry.batches.parts(batch.id) == []
    assert await registry.begin_collection(kept) == kept
    assert await registry.batches.claim("r1") is None


async def test_another_server_goes_on_after_the_lease(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """The one before, and a part that is not the next one, record nothing."""
    batch = await create(registry)
    await registry.batches.begin((await claimed(registry)).id, "r1", num_lines=2)
    await claimed(registry)
    assert await registry.batches.claim("r2") is None
    monkeypatch.setattr(queue, "LEASE", timedelta(0))
    await registry.batches.renew(batch.id, "r1")
    assert (await claimed(registry, "r2")).attempts == 2
    with pytest.raises(LeaseLost, match=r"^r1 does not have the batch"):
        await add_part(registry, batch, 0, 2, 0)
    with pytest.raises(LeaseLost, match="has 0 results, and the part begins at another line"):
        await add_part(registry, batch, 1, 1, 0, "r2")
    await registry.batches.release(batch.id, "r2")
    assert (await registry.batches.find("acme", batch.id)).attempts == 1


async def test_tenants_take_turns(registry: Registry) -> None:
    """However many batches one has; each of them from its oldest batch on."""
    first, _ = await create(registry), await create(registry)
    other = await create(registry, "zenith")
    served = []
    for _ in range(4):
        batch = await claimed(registry)
        served.append(batch.id)
        await registry.batches.release(batch.id, "r1")
    assert served == [first.id, other.id] * 2


async def test_a_cancelled_batch_is_ended_by_a_server(registry: Registry) -> None:
    """Cancelling twice changes nothing, and a batch that has ended stays as it is."""
    batch = await create(registry)
    for _ in range(2):
        assert (await registry.batches.cancel("acme", batch.id, actor="ann")).state == "cancelling"
    assert (await claimed(registry)).state == "cancelling"
    with pytest.raises(RegistryConflict, match=f"is needed by the batch '{batch.id}', which has not ended"):
        await registry.files.remove("acme", batch.input_file_id, actor="ann")
    await registry.batches.finish(batch.id, "r1", "failed", errors=[{"code": "x", "message": "y"}])
    with pytest.raises(RegistryConflict, match="is failed, so it cannot be cancelled"):
        await registry.batches.cancel("acme", batch.id, actor="ann")
    assert (await registry.batches.find("acme", batch.id)).errors == [{"code": "x", "message": "y"}]
    await registry.files.remove("acme", batch.input_file_id, actor="ann")


async def test_a_tenants_batches_and_bytes_are_bounded(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "MAX_BATCHES", 1)
    batch = await create(registry)
    with pytest.raises(QuotaReached, match="has 1 batches that have not ended and may have 1; wait for one or cancel"):
        await create(registry)
    await registry.batches.begin((await claimed(registry)).id, "r1", num_lines=2)
    used = (await registry.usage("acme")).stored_bytes
    await registry.update_tenant("acme", TenantQuotas(max_stored_bytes=used + 40), actor="operator")
    await registry.batches.release((await claimed(registry)).id, "r1")
    await claimed(registry)
    await add_part(registry, batch, 0, 1, 0)
    assert (await registry.usage("acme")).stored_bytes == used + len(batch.id) + 1
    await claimed(registry)
    with pytest.raises(QuotaReached, match=r"has stored .* bytes and may store"):
        await add_part(registry, batch, 1, 1, 0)


async def test_other_tenants_batches_do_not_exist(registry: Registry) -> None:
    """Not by id, in pages or as a place in them; and no batch has another's file."""
    batch = await create(registry)
    for call in (registry.batches.find("zenith", batch.id), registry.batches.list("zenith", after=batch.id)):
        with pytest.raises(BatchUnknown, match=f"tenant 'zenith' has no batch '{batch.id}'"):
            await call
    with pytest.raises(BatchUnknown):
        await registry.batches.cancel("zenith", batch.id, actor="bob")
    assert await registry.batches.list("zenith") == []
    draft = BatchDraft("/v1/embeddings", batch.input_file_id, "24h")
    with pytest.raises(FileUnknown):
        await registry.batches.create("zenith", draft, actor="bob")


async def test_pages_have_the_newest_first(registry: Registry) -> None:
    made = [(await create(registry)).id for _ in range(3)]
    page = await registry.batches.list("acme", limit=2)
    rest = await registry.batches.list("acme", limit=2, after=page[-1].id)
    assert [batch.id for batch in [*page, *rest]] == made[::-1]
    assert await registry.batches.count() == {"validating": 3}


def test_no_two_holders_have_one_name() -> None:
    """Also with the same host name and process id, as containers may have."""
    names = {create_holder_name() for _ in range(3)}
    assert len(names) == 3
    assert len({name.rpartition(":")[0] for name in names}) == 1
