"""Reads a backup and checks all contents against its digests."""

import hashlib
import json
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from peltier_adapters.digest import digest_of
from pydantic import ValidationError

from peltier_store.backup.backup import BLOBS, ROWS, SUMMARY, BackupError, Summary
from peltier_store.registry.dump import Line, schema_revision

_CHUNK_BYTES = 2**20
_MAX_SUMMARY_BYTES = 2**20


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

    def lines(self) -> Iterator[Line]:
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

    def _line(self, text: bytes) -> Line:
        try:
            line = json.loads(text)
            return Line(str(line["table"]), dict(line["row"]))
        except (ValueError, KeyError, TypeError) as error:
            raise BackupError(f"the backup {self._name!r} is damaged: its registry has a malformed line") from error

    def _summary(self) -> Summary:
        if not self._members.keys() >= {ROWS, SUMMARY} or self._members[SUMMARY].size > _MAX_SUMMARY_BYTES:
            raise BackupError(f"{self._name!r} is not a complete backup: it does not end with {SUMMARY!r}")
        try:
            summary = Summary.model_validate_json(b"".join(self._chunks(SUMMARY)))
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
    """The backup at `path`; raises BackupError if the file is not a backup or is cut short."""
    try:
        with tarfile.open(path, "r:") as tar:
            yield BackupReader(str(path), tar)
    except (tarfile.TarError, OSError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise BackupError(f"the backup {str(path)!r} cannot be read: {reason}") from error
