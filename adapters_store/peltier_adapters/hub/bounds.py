"""Bounds of downloads from a place that is not trusted: of bytes, before the first one is asked for, and of time."""

from collections.abc import Mapping
from dataclasses import dataclass

from peltier_adapters.errors import AdapterError

_MIB = 1024 * 1024
_BASE_SECONDS = 60
_MIN_BYTES_PER_SECOND = 256 * 1024


@dataclass(frozen=True)
class DownloadBounds:
    """How many files a place may list, and how many and which bytes of it are downloaded."""

    listed: int = 10_000
    files: int = 1_000
    file_bytes: int = 256 * _MIB
    bytes: int = 4096 * _MIB

    def check_listed(self, count: int, where: str) -> None:
        """Raises AdapterError if a listing is too long; callers read at most one entry more than `listed`."""
        if count > self.listed:
            raise AdapterError(f"{where} lists more than {self.listed:,} files, the most that are read")

    def check(self, sizes: Mapping[str, int], where: str) -> None:
        """Raises AdapterError if the files of these sizes, by their paths, are too many or too large."""
        if len(sizes) > self.files:
            raise AdapterError(f"{where} has {len(sizes):,} files to download; at most {self.files:,} are allowed")
        for path, size in sizes.items():
            if not 0 <= size <= self.file_bytes:
                raise AdapterError(
                    f"{where}: the file {path!r} has {size:,} bytes; at most {self.file_bytes:,} are allowed"
                )
        if sum(sizes.values()) > self.bytes:
            raise AdapterError(
                f"{where} has {sum(sizes.values()):,} bytes to download; at most {self.bytes:,} are allowed"
            )


BOUNDS = DownloadBounds()


def seconds_for(num_bytes: int) -> int:
    """How long the other side may take to send or receive so many bytes, at the least 256 KiB a second."""
    return _BASE_SECONDS + num_bytes // _MIN_BYTES_PER_SECOND
