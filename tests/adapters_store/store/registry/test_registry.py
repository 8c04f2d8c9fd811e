"""The registry as a whole: acknowledged changes persist, and cancelled callers do not affect others."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest
from peltier_client.protocol.administration import TenantQuotas
from peltier_store.blobs.blobs import Blobs, digest_of
from peltier_store.registry.errors import InvalidRecord, NotRegistered
from peltier_store.registry.extensions.registry import Registry

from tests.adapters_store.store.registry.conftest import publish


async def test_cancelled_publishes_leave_the_registry_working(registry: Registry) -> None:
    """A cancelled upload publishes a complete version or none, and does not delay others."""
    for steps in range(30):
        task = asyncio.create_task(publish(registry, bytes([steps])))
        for _ in range(steps):
            await asyncio.sleep(0.0003)
        task.cancel()
        await asyncio.wait([task])
        assert task.cancelled() or task.result()[1]
        await asyncio.wait_for(publish(registry, b"next%d" % steps), timeout=60)
    numbers = [version.number for version in await registry.versions()]
    assert numbers == list(range(1, len(numbers) + 1))


async def test_closing_finishes_what_an_absent_caller_began(url: str) -> None:
    """A publish whose caller was cancelled is complete when the registry is closed."""
    registry = await Registry.open(url)
    reservation = await registry.reserve(digest_of(b"one"))
    publishing = registry.publish("acme", "sst2", reservation, size_bytes=3, preset="lora", manifest="{}", actor="ann")
    task = asyncio.create_task(publishing)
    await asyncio.sleep(0)
    task.cancel()
    await registry.close()
    registry = await Registry.open(url)
    assert [version.digest for version in await registry.versions()] == [digest_of(b"one")]
    await registry.close()


# A program that only stores adapters needs no torch.
PUBLISH_FOREVER = """
import asyncio, sys
from peltier_store.blobs.blobs import Blobs, digest_of
from peltier_store.registry.extensions.registry import Registry

assert "torch" not in sys.modules

async def publish_forever(url, directory):
    registry, blobs = await Registry.open(url), Blobs.open(directory)
    for index in range(1_000_000):
        data = b"%d" % index * 1000
        reservation = await registry.reserve(digest_of(data))
        digest = await blobs.put(data)
        version, _ = await registry.publish(
            "default", "sst2", reservation, size_bytes=len(data), preset="lora", manifest="{}", actor="ann"
        )
        print(version.number, digest, flush=True)

asyncio.run(publish_forever(*sys.argv[1:]))
"""


def publish_until_killed(url: str, directory: Path, num_acknowledged: int) -> list[list[str]]:
    arguments = [sys.executable, "-c", PUBLISH_FOREVER, url, str(directory)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        acknowledged = [process.stdout.readline().split() for _ in range(num_acknowledged)]
        process.kill()
        return acknowledged + [line.split() for line in process.stdout if line.endswith("\n")]


# One round in the gate: later kills meet everything that earlier ones do.
@pytest.mark.parametrize("num_acknowledged", [7, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 40))])
async def test_a_killed_process_loses_nothing_it_acknowledged(url: str, tmp_path: Path, num_acknowledged: int) -> None:
    """After kill -9 during a publish, every acknowledged version exists with its bytes. The process has no torch."""
    acknowledged = await asyncio.to_thread(publish_until_killed, url, tmp_path / "blobs", num_acknowledged)
    registry, blobs = await Registry.open(url), Blobs.open(tmp_path / "blobs")
    # PostgreSQL may still be at the last commit that the process asked for. A writer waits for it, a reader does not.
    await registry.reserve(digest_of(b"next"))
    versions = await registry.versions()
    listed = [[str(version.number), version.digest] for version in versions]
    assert listed[: len(acknowledged)] == acknowledged
    assert len(listed) <= len(acknowledged) + 1
    assert [len(await blobs.get(version.digest)) for version in versions] == [
        version.size_bytes for version in versions
    ]
    assert (await publish(registry, b"next", tenant="default"))[0].number == len(listed) + 1
    await registry.close()


@pytest.mark.parametrize("text", ["a\0b", "a\ud800b", "a" * 10_000], ids=["zero", "half", "long"])
async def test_a_strange_name_is_only_not_there(registry: Registry, text: str) -> None:
    """A value that a database cannot store is an error of the caller, not of the database."""
    await publish(registry, b"one")
    calls = (
        lambda: registry.delete_adapter("acme", text, actor="ann"),
        lambda: registry.set_public(text, "sst2", True, actor="ann"),
        lambda: registry.set_alias("acme", text, "production", {1: 1.0}, actor="ann"),
        lambda: registry.alias_history("acme", "sst2", text),
        lambda: registry.update_tenant(text, TenantQuotas(), actor="ann"),
        lambda: registry.revoke_key(text, actor="ann"),
    )
    for call in calls:
        with pytest.raises((NotRegistered, InvalidRecord), match=r"^[^\n]+$"):
            await call()


@pytest.mark.parametrize("number", [0, -1, 2**31, 2**70])
async def test_a_strange_number_is_only_not_there(registry: Registry, number: int) -> None:
    await publish(registry, b"one")
    calls = (
        lambda: registry.delete_version("acme", "sst2", number, actor="ann"),
        lambda: registry.undelete("acme", "sst2", number, actor="ann"),
        lambda: registry.set_alias("acme", "sst2", "production", {number: 1.0}, actor="ann"),
    )
    for call in calls:
        with pytest.raises((NotRegistered, InvalidRecord), match=r"^[^\n]+$"):
            await call()
