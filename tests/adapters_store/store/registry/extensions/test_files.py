"""Files of examples, on both databases."""

from dataclasses import replace
from datetime import timedelta

import pytest
from peltier_client.protocol.administration import TenantQuotas
from peltier_store.blobs.blobs import digest_of
from peltier_store.registry.errors import BlobBusy, FileUnknown, QuotaReached, RegistryConflict, TenantUnknown
from peltier_store.registry.extensions import files
from peltier_store.registry.extensions.queue_records import TrainingDraft
from peltier_store.registry.extensions.registry import Registry

from tests.adapters_store.store.registry.conftest import add_file, add_training


async def test_a_file_is_what_was_added(registry: Registry) -> None:
    """It is found and listed for its tenant only, and is in the audit log."""
    file = await add_file(registry, b"[1]\n", num_rows=7)
    assert (file.tenant, file.name, file.purpose, file.size_bytes, file.num_rows) == (
        "acme", "train.jsonl", "fine-tune", 4, 7,
    )  # fmt: skip
    assert await registry.files.find("acme", file.id) == file
    assert await registry.files.list("acme") == [file]
    assert await registry.files.list("acme", purposes=["batch"]) == await registry.files.list("zenith") == []
    with pytest.raises(FileUnknown, match=rf"^tenant 'zenith' has no file '{file.id}'$"):
        await registry.files.find("zenith", file.id)
    assert [(entry.action, entry.subject) for entry in await registry.audit(limit=1)] == [("create_file", file.id)]


async def test_files_are_listed_in_pages(registry: Registry) -> None:
    """The newest first; those that were sent with a training are not listed."""
    files = [await add_file(registry, str(number).encode()) for number in range(5)]
    await add_file(registry, is_inline=True)
    assert await registry.files.list("acme", limit=2) == [files[4], files[3]]
    assert await registry.files.list("acme", limit=9, after=files[3].id) == [files[2], files[1], files[0]]
    with pytest.raises(FileUnknown):
        await registry.files.list("acme", after="file-0")


async def test_bytes_are_kept_as_long_as_their_file(registry: Registry) -> None:
    """A collector gets them only when the row is gone."""
    file = await add_file(registry, b"bytes")
    assert await registry.begin_collection([digest_of(b"bytes")]) == set()
    assert digest_of(b"bytes") in await registry.digests()
    await registry.files.remove("acme", file.id, actor="ann")
    assert await registry.begin_collection([digest_of(b"bytes")]) == {digest_of(b"bytes")}


async def test_a_file_needs_its_reservation(registry: Registry) -> None:
    """Without it the bytes may be gone."""
    reservation = await registry.reserve(digest_of(b"x"))
    await registry.release(reservation)
    with pytest.raises(BlobBusy):
        await registry.files.add(
            "acme", reservation, name="a", purpose="fine-tune", size_bytes=1, num_rows=1, actor="ann"
        )
    lost = replace(reservation, token="0")
    with pytest.raises(TenantUnknown):
        await registry.files.add("nobody", lost, name="a", purpose="fine-tune", size_bytes=1, num_rows=1, actor="ann")


async def test_examples_without_their_training_are_purged(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """After an hour; those of a training, and files of their own, stay."""
    lost = await add_file(registry, b"lost", is_inline=True)
    kept, training = await add_file(registry, b"kept"), await add_training(registry)
    await registry.purge(timedelta(0), actor="operator")
    assert await registry.files.find("acme", lost.id) == lost
    monkeypatch.setattr(files, "_MAX_CREATING", timedelta(0))
    await registry.purge(timedelta(0), actor="operator")
    with pytest.raises(FileUnknown):
        await registry.files.find("acme", lost.id)
    assert await registry.files.find("acme", kept.id) == kept
    assert training.train_file_id is not None
    await registry.files.find("acme", training.train_file_id)


async def test_bytes_of_files_count_for_the_quota(registry: Registry) -> None:
    await registry.update_tenant("acme", TenantQuotas(max_stored_bytes=10), actor="operator")
    file = await add_file(registry, b"12345678")
    assert (await registry.usage("acme")).stored_bytes == 8
    with pytest.raises(QuotaReached):
        await registry.files.require_room("acme", 3)
    with pytest.raises(QuotaReached):
        await add_file(registry, b"123")
    await registry.files.remove("acme", file.id, actor="ann")
    await add_file(registry, b"123")


async def test_a_file_of_a_training_that_has_not_ended_stays(registry: Registry) -> None:
    """It can be deleted afterwards, and the training remains without it."""
    file = await add_file(registry)
    training = await registry.trainings.create("acme", TrainingDraft("sst2", {}, file.id), actor="ann")
    with pytest.raises(RegistryConflict, match=rf"is needed by the training '{training.id}', which has not ended$"):
        await registry.files.remove("acme", file.id, actor="ann")
    await registry.trainings.cancel("acme", training.id, actor="ann")
    await registry.files.remove("acme", file.id, actor="ann")
    assert (await registry.trainings.find("acme", training.id)).train_file_id is None
