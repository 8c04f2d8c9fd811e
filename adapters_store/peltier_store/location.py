"""What `--store` and `--registry` name together: where the bytes are, and where the record of them is."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from peltier_store.blobs.location import BlobError, is_remote, local_path
from peltier_store.registry.database import database_url


@dataclass(frozen=True)
class StoreLocation:
    """A place for blobs, for `Blobs.open`, and the URL of a registry, for `Registry.open`."""

    blobs: Path | str
    registry: str

    @classmethod
    def of(cls, store: Path | str, registry: str = "") -> Self:
        """A local store holds both, unless a registry is given; one at a URL holds the bytes alone.

        Raises BlobError if neither can hold the registry.
        """
        if not is_remote(store):
            directory = local_path(store)
            return cls(directory / "blobs", registry or f"sqlite+aiosqlite:///{directory / 'registry.db'}")
        if not registry:
            shown = str(store).partition("?")[0]
            raise BlobError(
                f"the store {shown!r} has no place for a registry: name one beside it, "
                "postgresql+asyncpg://USER@HOST/DATABASE or sqlite+aiosqlite:///PATH"
            )
        return cls(str(store), registry)

    def existing(self) -> Self:
        """This location; raises BlobError where its registry is to be in a file that there is not yet."""
        file = database_url(self.registry)
        if file.get_backend_name() == "sqlite" and not Path(file.database or "").is_file():
            raise BlobError(f"there is no store: the registry {file.database!r} does not exist")
        return self
