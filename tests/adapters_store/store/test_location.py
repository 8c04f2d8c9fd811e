from pathlib import Path

import pytest
from peltier_store.blobs.errors import BlobError
from peltier_store.location import StoreLocation

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


def test_a_url_of_another_machine_is_no_directory() -> None:
    """A file:// URL names a directory of this machine."""
    with pytest.raises(BlobError, match="neither a directory nor a file:///DIRECTORY URL"):
        StoreLocation.of("file://host/store")
