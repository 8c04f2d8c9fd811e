"""Where the blobs and the registry of a store are."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from peltier_store.blobs.errors import BlobError
from peltier_store.blobs.location import is_remote, local_path
from peltier_store.registry.database import database_url


@dataclass(frozen=True)
class StoreLocation:
    """A place for blobs, for `Blobs.open`, and the URL of a registry, for `Registry.open`."""

    blobs: Path | str
    registry: str

    @classmethod
    def of(cls, store: Path | str, registry: str = "") -> Self:
        """A directory holds both unless a registry is given; a bucket holds only blobs.

        Raises BlobError for a bucket without a registry.
        """
        if not is_remote(store):
            directory = local_path(store)
            return cls(directory / "blobs", registry or f"sqlite+aiosqlite:///{directory / 'registry.db'}")
        if not registry:
            shown = str(store).partition("?")[0]
            raise BlobError(
                f"the store {shown!r} cannot hold a registry: also give the registry's URL, "
                "postgresql+asyncpg://USER@HOST/DATABASE or sqlite+aiosqlite:///PATH"
            )
        return cls(str(store), registry)

    def existing(self) -> Self:
        """This location; raises BlobError if its registry is a file that does not exist."""
        file = database_url(self.registry)
        if file.get_backend_name() == "sqlite" and not Path(file.database or "").is_file():
            raise BlobError(f"there is no store: the registry {file.database!r} does not exist")
        return self
