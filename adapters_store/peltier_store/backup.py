"""A backup: one tar file of everything that a registry and its blob store hold.

`blobs/sha256/…` are the blobs, and `registry.jsonl` has one row of the registry per line. `backup.json` is the last
member, so it is present only in a complete backup. Digests cover all contents: a blob is named by the digest of its
bytes, and `backup.json` has the digest of the rows. Servers may use the store during an export."""

import asyncio
import hashlib
import io
import json
import os
import tarfile
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from collections.abc import Set as AbstractSet
from contextlib import asynccontextmanager, contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from tempfile import NamedTemporaryFile, TemporaryFile
from typing import IO, Literal

from peltier_adapters.artifact.source import digest_of
from peltier_adapters.durable import sync
from peltier_adapters.errors import AdapterError
from pydantic import BaseModel, ConfigDict, ValidationError

from peltier_store.blobs.blobs import BlobNotFound, Blobs
from peltier_store.registry.contents import DumpedRow, schema_revision
from peltier_store.registry.extensions.registry import Registry

BLOBS, ROWS, SUMMARY = "blobs/", "registry.jsonl", "backup.json"
_MAX_SUMMARY_BYTES = 2**20
# The number of blobs in memory at a time.
_BATCH = 8


class BackupError(AdapterError):
    """A backup cannot be written or read."""


class BackupSummary(BaseModel):
    """The contents of a backup. `num_rows` counts by table."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    format: Literal["peltier-backup"] = "peltier-backup"
    format_version: Literal[1] = 1
    schema_revision: str
    created_at: datetime
    num_rows: dict[str, int]
    num_blobs: int
    blob_bytes: int
    rows_digest: str


class DumpedRows:
    """Rows as lines of JSON, their number by table, and the blobs that they need."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.num_rows: Counter[str] = Counter()
        self.digests: set[str] = set()
        self._sha256 = hashlib.sha256()

    @property
    def digest(self) -> str:
        return f"sha256:{self._sha256.hexdigest()}"

    def take(self, line: DumpedRow) -> None:
        """Adds a row, and notes the blob that it needs."""
        text = json.dumps({"table": line.table, "row": line.row}, ensure_ascii=False).encode() + b"\n"
        self.file.write(text)
        self._sha256.update(text)
        self.num_rows[line.table] += 1
        self.digests |= line.digests


class BackupWriter:
    """Writes the members of a backup into a tar file."""

    def __init__(self, tar: tarfile.TarFile) -> None:
        self._tar = tar
        # The sizes of the blobs that it has, by digest.
        self.blobs: dict[str, int] = {}

    def add_blob(self, data: bytes) -> None:
        """Adds a blob. Call it once for each blob."""
        digest = digest_of(data)
        self._add(f"{BLOBS}{digest.replace(':', '/')}", io.BytesIO(data), len(data))
        self.blobs[digest] = len(data)

    def finish(self, rows: DumpedRows) -> BackupSummary:
        """Adds the rows, and the summary that completes the backup."""
        length = rows.file.tell()
        rows.file.seek(0)
        self._add(ROWS, rows.file, length)
        summary = BackupSummary(
            schema_revision=schema_revision(),
            created_at=datetime.now(UTC),
            num_rows=dict(rows.num_rows),
            num_blobs=len(self.blobs),
            blob_bytes=sum(self.blobs.values()),
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
                yield BackupWriter(tar)
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
            await _add_blobs(backup, registry, blobs, await registry.digests() - backup.blobs.keys())
            with TemporaryFile(dir=path.parent) as file:
                rows = DumpedRows(file)
                await registry.contents.dump(rows.take)
                if rows.digests <= backup.blobs.keys():
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


class BackupReader:
    """A backup with all of its members; `check` verifies their contents."""

    def __init__(self, name: str, tar: tarfile.TarFile) -> None:
        self._name = name
        self._tar = tar
        # A sparse member may have any size, whatever the size of the file.
        self._members = {one.name: one for one in tar.getmembers() if one.isfile() and not one.issparse()}
        self.digests = {
            member.removeprefix(BLOBS).replace("/", ":") for member in self._members if member.startswith(BLOBS)
        }
        self.summary = self._summary()

    def blob(self, digest: str) -> bytes:
        """The bytes that have this digest; raises BackupError if they are damaged."""
        data = self._read(f"{BLOBS}{digest.replace(':', '/')}")
        if digest_of(data) != digest:
            raise BackupError(f"the backup {self._name!r} is damaged: the blob {digest} has other bytes")
        return data

    def lines(self) -> Iterator[DumpedRow]:
        with self._file(ROWS) as file:
            for text in file:
                yield self._line(text)

    def check(self) -> None:
        """Reads everything once; raises BackupError for the first damaged or missing member."""
        with self._file(ROWS) as file:
            digest = f"sha256:{hashlib.file_digest(file, 'sha256').hexdigest()}"
        if digest != self.summary.rows_digest:
            raise BackupError(f"the backup {self._name!r} is damaged: its registry has other bytes")
        if len(self.digests) != self.summary.num_blobs:
            raise BackupError(
                f"the backup {self._name!r} is damaged: it has {len(self.digests)} blobs of {self.summary.num_blobs}"
            )
        for line in self.lines():
            if missing := line.digests - self.digests:
                raise BackupError(f"the backup {self._name!r} is damaged: it lacks the blob {min(missing)}")
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
            summary = BackupSummary.model_validate_json(self._read(SUMMARY))
        except ValidationError as error:
            raise BackupError(f"{self._name!r} is not a backup that this version of Peltier can read") from error
        if summary.schema_revision != schema_revision():
            raise BackupError(
                f"the backup {self._name!r} has schema {summary.schema_revision!r}, but this Peltier has "
                f"{schema_revision()!r}: import it with the version that wrote it"
            )
        return summary

    def _read(self, member: str) -> bytes:
        with self._file(member) as file:
            return file.read()

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
    await require_room(blobs, backup)

    async def ready() -> None:
        missing = backup.digests - await _stored(blobs)
        if missing:
            raise BackupError(f"{len(missing)} blobs were deleted while they were imported, such as {min(missing)}")

    async with _take_over(registry, blobs):
        await _put_blobs(backup, blobs)
        await registry.contents.restore(backup.lines(), ready)
    return backup.summary


async def require_room(blobs: Blobs, backup: BackupReader) -> None:
    """Raises BackupError if the blob store holds blobs that the backup does not; changes nothing."""
    foreign = await _stored(blobs) - backup.digests
    if foreign:
        raise BackupError(f"the blob store is not empty: it holds {len(foreign)} blobs that the backup does not")


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
