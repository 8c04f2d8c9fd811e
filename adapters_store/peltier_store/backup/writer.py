"""Writing a backup: blobs first, the rows that need them last."""

import io
import os
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryFile
from typing import IO

from peltier_adapters.durable import sync

from peltier_store.backup.backup import BLOBS, ROWS, SUMMARY, BackupError, Summary
from peltier_store.backup.row_file import RowFile
from peltier_store.blobs.blobs import digest_of
from peltier_store.registry.dump import schema_revision


class BackupWriter:
    """A backup on its way into a tar."""

    def __init__(self, tar: tarfile.TarFile, directory: Path) -> None:
        self._tar = tar
        self._directory = directory
        self._blob_bytes = 0
        self.digests: set[str] = set()

    def add_blob(self, data: bytes) -> None:
        """Adds a blob, once."""
        digest = digest_of(data)
        self._add(f"{BLOBS}{digest.replace(':', '/')}", io.BytesIO(data), len(data))
        self.digests.add(digest)
        self._blob_bytes += len(data)

    @contextmanager
    def row_file(self) -> Iterator[RowFile]:
        """A place for rows until it is clear that all of their blobs are in."""
        with TemporaryFile(dir=self._directory) as file:
            yield RowFile(file)

    def finish(self, rows: RowFile) -> Summary:
        """Adds the rows, and the summary that makes the backup a whole one."""
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
    """A new backup, which has its name once it is whole and on the disk, and leaves nothing if it fails.

    Raises BackupError where there is a file of this name, or no room.
    """
    partial = None
    try:
        if path.exists():
            raise BackupError(f"the backup {str(path)!r} exists already; a backup is never overwritten")
        # Readable for nobody else, which is how such files begin.
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
