import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from peltier_store.blobs.blobs import Blobs
from peltier_store.blobs.errors import BlobError
from peltier_store.location import StoreLocation, require_not_foreign, require_own, require_registry_of
from peltier_store.registry.errors import RegistryError
from peltier_store.registry.extensions.registry import Registry

from tests.adapters_store.store.conftest import MakeRegistry, opened

REGISTRY = "postgresql+asyncpg://localhost/peltier"


def test_a_directory_holds_the_bytes_and_the_registry() -> None:
    """Everything is in one directory, unless another registry is named."""
    location = StoreLocation.of("/var/peltier")
    assert location == StoreLocation(Path("/var/peltier/blobs"), "sqlite+aiosqlite:////var/peltier/registry.db")
    assert StoreLocation.of("file:///var/peltier") == location
    assert StoreLocation.of("/var/peltier", REGISTRY) == StoreLocation(Path("/var/peltier/blobs"), REGISTRY)


def test_a_bucket_holds_the_bytes_alone() -> None:
    """The URL of a bucket is passed on unchanged, and a registry must be given."""
    url = "s3://bucket/prefix?region=eu-west-3"
    assert StoreLocation.of(url, REGISTRY) == StoreLocation(url, REGISTRY)
    with pytest.raises(BlobError, match=r"^the store 's3://bucket/prefix' cannot hold a registry: also give"):
        StoreLocation.of(url)


@pytest.fixture
async def registries(make_registry: MakeRegistry, tmp_path: Path) -> AsyncIterator[tuple[Registry, Registry]]:
    """Two new registries."""
    urls = [make_registry(tmp_path / name) for name in ("one.db", "other.db")]
    async with opened(urls[0]) as one, opened(urls[1]) as other:
        yield one, other


async def test_the_first_registry_owns_a_store(registries: tuple[Registry, Registry], tmp_path: Path) -> None:
    """Another registry is refused in a sentence that says what to do."""
    blobs, (one, other) = Blobs.open(tmp_path / "blobs"), registries
    await require_not_foreign(other, blobs)
    assert await blobs.owner.read() is None
    for _ in range(2):
        await require_own(one, blobs)
    rule = f"^the blob store '{tmp_path}/blobs' belongs to the registry [0-9a-f]{{32}}, not to this one, which is "
    for require in (require_own, require_not_foreign):
        with pytest.raises(BlobError, match=rule):
            await require(other, blobs)
    (tmp_path / "blobs" / "owner").unlink()
    await require_own(other, Blobs.open(tmp_path / "blobs"))


@pytest.mark.parametrize(("make", "what"), [(Path.unlink, "missing"), (lambda path: os.truncate(path, 0), "empty")])
async def test_no_new_registry_takes_the_place_of_one_that_is_lost(make, what, make_registry, tmp_path):
    """The error names the owner of the blobs; a store without an owner accepts a new registry."""
    path, blobs = tmp_path / "registry.db", Blobs.open(tmp_path / "blobs")
    url = f"sqlite+aiosqlite:///{path}"
    await require_registry_of(blobs, url)
    async with opened(make_registry(path)) as registry:
        await require_own(registry, blobs)
    await require_registry_of(blobs, url)
    make(path)
    with pytest.raises(
        RegistryError, match=rf"^the registry '{path}' is {what}, and the blob store '{tmp_path}/blobs'"
    ):
        await require_registry_of(blobs, url)
