"""Imports a backup, all contents of which are checked against its digests, into a new registry and a new blob store."""

import asyncio
import hashlib
import json
import tarfile
from collections.abc import AsyncIterator, Iterator
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

from peltier_adapters.artifact.source import digest_of
from pydantic import ValidationError

from peltier_store.backup.backup import BLOBS, ROWS, SUMMARY, BackupError, BackupSummary
from peltier_store.blobs.blobs import Blobs
from peltier_store.registry import Registry
from peltier_store.registry.contents import DumpedRow, schema_revision

_CHUNK_BYTES = 2**20
_MAX_SUMMARY_BYTES = 2**20
# The number of blobs in memory at a time.
_BATCH = 8


class BackupReader:
    """A backup with all of its members; `check` verifies their contents."""

    def __init__(self, name: str, tar: tarfile.TarFile) -> None:
        self._name = name
        self._tar = tar
        self._members = {member.name: member for member in tar.getmembers() if member.isfile()}
        self.digests = {
            member.removeprefix(BLOBS).replace("/", ":") for member in self._members if member.startswith(BLOBS)
        }
        self.summary = self._summary()

    def blob(self, digest: str) -> bytes:
        """The bytes that have this digest; raises BackupError if they are damaged."""
        data = b"".join(self._chunks(f"{BLOBS}{digest.replace(':', '/')}"))
        if digest_of(data) != digest:
            raise BackupError(f"the backup {self._name!r} is damaged: the blob {digest} has other bytes")
        return data

    def lines(self) -> Iterator[DumpedRow]:
        """The rows of the registry."""
        with self._file(ROWS) as file:
            for text in file:
                yield self._line(text)

    def check(self) -> None:
        """Reads everything once; raises BackupError for the first damaged or missing member."""
        sha256 = hashlib.sha256()
        for chunk in self._chunks(ROWS):
            sha256.update(chunk)
        if f"sha256:{sha256.hexdigest()}" != self.summary.rows_digest:
            raise BackupError(f"the backup {self._name!r} is damaged: its registry has other bytes")
        if len(self.digests) != self.summary.num_blobs:
            raise BackupError(
                f"the backup {self._name!r} is damaged: it has {len(self.digests)} blobs of {self.summary.num_blobs}"
            )
        for line in self.lines():
            if line.table == "versions" and line.row.get("digest") not in self.digests:
                raise BackupError(f"the backup {self._name!r} is damaged: it lacks the blob {line.row.get('digest')}")
        for digest in self.digests:
            self.blob(digest)

    def _line(self, text: bytes) -> DumpedRow:
        try:
            line = json.loads(text)
            return DumpedRow(str(line["table"]), dict(line["row"]))
        except (ValueError, KeyError, TypeError) as error:
            raise BackupError(f"the backup {self._name!r} is damaged: its registry has a malformed line") from error

    def _summary(self) -> BackupSummary:
        if not self._members.keys() >= {ROWS, SUMMARY} or self._members[SUMMARY].size > _MAX_SUMMARY_BYTES:
            raise BackupError(f"{self._name!r} is not a complete backup: it does not end with {SUMMARY!r}")
        try:
            summary = BackupSummary.model_validate_json(b"".join(self._chunks(SUMMARY)))
        except ValidationError as error:
            raise BackupError(f"{self._name!r} is not a backup that this version of Peltier can read") from error
        if summary.schema_revision != schema_revision():
            raise BackupError(
                f"the backup {self._name!r} has schema {summary.schema_revision!r}, but this Peltier has "
                f"{schema_revision()!r}: import it with the version that wrote it, then upgrade that registry"
            )
        return summary

    def _chunks(self, member: str) -> Iterator[bytes]:
        with self._file(member) as file:
            while chunk := file.read(_CHUNK_BYTES):
                yield chunk

    def _file(self, member: str) -> tarfile.ExFileObject:
        file = self._tar.extractfile(self._members[member])
        assert isinstance(file, tarfile.ExFileObject)
        return file


@contextmanager
def read_backup(path: Path) -> Iterator[BackupReader]:
    """The backup at `path`, whose contents are verified. Raises BackupError if the file is not a backup, is cut short
    or is damaged."""
    try:
        with tarfile.open(path, "r:") as tar:
            backup = BackupReader(str(path), tar)
            backup.check()
            yield backup
    except (tarfile.TarError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise BackupError(f"the backup {str(path)!r} cannot be read: {reason}") from error


async def import_store(registry: Registry, blobs: Blobs, backup: BackupReader) -> BackupSummary:
    """Restores a verified backup into an empty registry and blob store; the registry's commit is the last step.

    The blob store may already hold blobs of this backup, so that an interrupted import can be repeated. It may also be
    the store of the exported registry; from then on it belongs to the new one. Raises RegistryConflict or BackupError
    if the store holds something else, before anything is stored; BlobError or RegistryError if the store fails. Then
    the registry stays empty, and the collector deletes the blobs.
    """
    await registry.contents.require_empty()
    foreign = await _stored(blobs) - backup.digests
    if foreign:
        raise BackupError(f"the blob store is not empty: it holds {len(foreign)} blobs that the backup does not")

    async def ready() -> None:
        missing = backup.digests - await _stored(blobs)
        if missing:
            raise BackupError(f"{len(missing)} blobs were deleted while they were imported, such as {min(missing)}")

    async with _take_over(registry, blobs):
        await _put_blobs(backup, blobs)
        await registry.contents.restore(backup.lines(), ready)
    return backup.summary


@asynccontextmanager
async def _take_over(registry: Registry, blobs: Blobs) -> AsyncIterator[None]:
    """The blob store belongs to this registry; if the import fails, it belongs to its former owner again."""
    # Before any blob is stored, because the former owner's collector deletes all blobs that its registry lacks.
    former = await blobs.owner.read()
    await blobs.owner.hand_over(await registry.identity())
    try:
        yield
    except BaseException:
        if former is not None:
            await blobs.owner.hand_over(former)
        raise


async def _put_blobs(backup: BackupReader, blobs: Blobs) -> None:
    ordered = sorted(backup.digests)
    for start in range(0, len(ordered), _BATCH):
        batch = ordered[start : start + _BATCH]
        # All of them end before an error is raised, so that none is stored after the import has failed.
        stored = await asyncio.gather(*(blobs.put(backup.blob(digest)) for digest in batch), return_exceptions=True)
        for error in stored:
            if isinstance(error, BaseException):
                raise error


async def _stored(blobs: Blobs) -> AbstractSet[str]:
    return {entry.digest async for entry in blobs.entries()}
