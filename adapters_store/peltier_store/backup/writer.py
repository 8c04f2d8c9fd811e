"""Writes a backup: first the blobs, then the rows that need them."""

import io
import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryFile
from typing import IO

from peltier_adapters.digest import digest_of
from peltier_adapters.durable import sync

from peltier_store.backup.backup import BLOBS, ROWS, SUMMARY, BackupError, Summary
from peltier_store.backup.row_file import RowFile
from peltier_store.registry.dump import schema_revision


class BackupWriter:
    """Writes the members of a backup into a tar file."""

    def __init__(self, tar: tarfile.TarFile, directory: Path) -> None:
        self._tar = tar
        self._directory = directory
        self._blob_bytes = 0
        self.digests: set[str] = set()

    def add_blob(self, data: bytes) -> None:
        """Adds a blob. Call it once for each blob."""
        digest = digest_of(data)
        self._add(f"{BLOBS}{digest.replace(':', '/')}", io.BytesIO(data), len(data))
        self.digests.add(digest)
        self._blob_bytes += len(data)

    @contextmanager
    def row_file(self) -> Iterator[RowFile]:
        """A temporary file for rows, until all of their blobs are in the backup."""
        with TemporaryFile(dir=self._directory) as file:
            yield RowFile(file)

    def finish(self, rows: RowFile) -> Summary:
        """Adds the rows, and the summary that completes the backup."""
        length = rows.file.tell()
        rows.file.seek(0)
        self._add(ROWS, rows.file, length)
        summary = Summary(
            schema_revision=schema_revision(),
            created_at=datetime.now(UTC),
            num_rows=dict(rows.num_rows),
            num_blobs=len(self.digests),
            blob_bytes=self._blob_bytes,
            rows_digest=rows.digest,
        )
        data = summary.model_dump_json(indent=1).encode()
        self._add(SUMMARY, io.BytesIO(data), len(data))
        return summary

    def _add(self, name: str, file: IO[bytes], length: int) -> None:
        member = tarfile.TarInfo(name)
        member.size, member.mode, member.mtime = length, 0o600, int(datetime.now(UTC).timestamp())
        self._tar.addfile(member, file)


@contextmanager
def write_backup(path: Path) -> Iterator[BackupWriter]:
    """A new backup. The file gets its name when it is complete and durable; a failure leaves no file.

    Raises BackupError if a file of this name exists or the disk is full.
    """
    partial = None
    try:
        if path.exists():
            raise BackupError(f"the backup {str(path)!r} exists already; a backup is never overwritten")
        # Temporary files are readable only by their owner, and so is the backup.
        with NamedTemporaryFile(dir=path.parent, prefix=f".{path.name}.", suffix=".partial", delete=False) as file:
            partial = Path(file.name)
            with tarfile.open(fileobj=file, mode="w", format=tarfile.PAX_FORMAT) as tar:
                yield BackupWriter(tar, path.parent)
            file.flush()
            os.fsync(file.fileno())
        partial.rename(path)
        sync(path.parent)
    except OSError as error:
        raise BackupError(f"the backup {str(path)!r} cannot be written: {error.strerror or error}") from error
    finally:
        if partial is not None:
            with suppress(OSError):
                partial.unlink()
