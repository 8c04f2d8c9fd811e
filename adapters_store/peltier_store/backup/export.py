"""Exports a store to a backup, while servers may use it: first the blobs, then the rows that need them."""

import asyncio
import hashlib
import io
import json
import os
import tarfile
from collections import Counter
from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryFile
from typing import IO

from peltier_adapters.artifact.source import digest_of
from peltier_adapters.durable import sync

from peltier_store.backup.backup import BLOBS, ROWS, SUMMARY, BackupError, BackupSummary
from peltier_store.blobs.blobs import BlobNotFound, Blobs
from peltier_store.registry import Registry
from peltier_store.registry.contents import DumpedRow, schema_revision

# The number of blobs in memory at a time.
_BATCH = 8


class DumpedRows:
    """Rows as lines of JSON, their number by table, and the blobs that they need."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.num_rows: Counter[str] = Counter()
        self.digests: set[str] = set()
        self._sha256 = hashlib.sha256()

    @property
    def digest(self) -> str:
        """The digest of all lines."""
        return f"sha256:{self._sha256.hexdigest()}"

    def take(self, line: DumpedRow) -> None:
        """Adds a row, and notes the blob that it needs."""
        text = json.dumps({"table": line.table, "row": line.row}, ensure_ascii=False).encode() + b"\n"
        self.file.write(text)
        self._sha256.update(text)
        self.num_rows[line.table] += 1
        if line.table == "versions":
            self.digests.add(line.row["digest"])


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
    def row_file(self) -> Iterator[DumpedRows]:
        """A temporary file for rows, until all of their blobs are in the backup."""
        with TemporaryFile(dir=self._directory) as file:
            yield DumpedRows(file)

    def finish(self, rows: DumpedRows) -> BackupSummary:
        """Adds the rows, and the summary that completes the backup."""
        length = rows.file.tell()
        rows.file.seek(0)
        self._add(ROWS, rows.file, length)
        summary = BackupSummary(
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


async def export_store(registry: Registry, blobs: Blobs, path: Path) -> BackupSummary:
    """Writes a new backup of one state of the registry, with the bytes of each of its versions.

    Raises BackupError, RegistryError, or BlobError if a blob is missing or damaged; then it leaves no file.
    """
    with write_backup(path) as backup:
        # Versions published while blobs are copied appear in the rows; their blobs are copied in the next round.
        while True:
            await _add_blobs(backup, registry, blobs, await registry.digests() - backup.digests)
            with backup.row_file() as rows:
                await registry.contents.dump(rows.take)
                if rows.digests <= backup.digests:
                    return backup.finish(rows)


async def _add_blobs(backup: BackupWriter, registry: Registry, blobs: Blobs, digests: AbstractSet[str]) -> None:
    ordered = sorted(digests)
    for start in range(0, len(ordered), _BATCH):
        batch = ordered[start : start + _BATCH]
        for data in await asyncio.gather(*(_fetch(registry, blobs, digest) for digest in batch)):
            if data is not None:
                backup.add_blob(data)


async def _fetch(registry: Registry, blobs: Blobs, digest: str) -> bytes | None:
    """The blob; None if it was purged and collected meanwhile."""
    try:
        return await blobs.get(digest)
    except BlobNotFound:
        if digest in await registry.digests():
            raise
        return None
