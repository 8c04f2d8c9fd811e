"""Checks that a blob store holds the bytes that its registry records."""

import asyncio
import json
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from peltier_adapters.artifact.manifest import Manifest, parse_manifest, read_header
from peltier_adapters.errors import ArtifactError

from peltier_store.blobs.blobs import BlobError, BlobNotFound, Blobs, StoredBlob
from peltier_store.registry.extensions.registry import Registry
from peltier_store.registry.records import VersionRecord

# The number of blobs in memory at a time.
_BATCH = 8


@dataclass(frozen=True)
class VerificationReport:
    """What was checked, and a sentence for each problem. An orphan is a blob that nothing needs."""

    num_versions: int
    num_blobs: int
    blob_bytes: int
    problems: Sequence[str]
    orphans: Sequence[StoredBlob]


async def verify_store(registry: Registry, blobs: Blobs) -> VerificationReport:
    """Reads every blob that a version needs, live or deleted, and those of files and trainings. Servers may use the
    store meanwhile.

    Raises RegistryError if the registry cannot be read, and BlobError if the blob store cannot be listed.
    """
    entries = [entry async for entry in blobs.entries()]
    # After the list, so that blobs published meanwhile are not counted as orphans.
    users: dict[str, list[VersionRecord]] = defaultdict(list)
    for version in await registry.versions(deleted=True):
        users[version.digest].append(version)
    needed = await registry.digests()
    problems = []
    digests = sorted(needed | users.keys())
    for start in range(0, len(digests), _BATCH):
        batch = digests[start : start + _BATCH]
        checks = (_problems(registry, blobs, digest, users.get(digest, ())) for digest in batch)
        for found in await asyncio.gather(*checks):
            problems += found
    return VerificationReport(
        num_versions=sum(map(len, users.values())),
        num_blobs=len(users),
        blob_bytes=sum(versions[0].size_bytes for versions in users.values()),
        problems=problems,
        orphans=[entry for entry in entries if entry.digest not in needed | users.keys()],
    )


async def _problems(registry: Registry, blobs: Blobs, digest: str, versions: Sequence[VersionRecord]) -> list[str]:
    """What is wrong with these versions, which all have this digest, or with a blob that no version has."""
    try:
        data = await blobs.get(digest)
    except BlobError as error:
        # It may have been purged and collected meanwhile.
        if isinstance(error, BlobNotFound) and digest not in await registry.digests():
            return []
        owners = [_name(version) for version in versions] or ["a file or a training"]
        return [f"{owner} has lost its bytes: {error}" for owner in owners]
    return [problem for version in versions for problem in _differences(version, data)]


def _differences(version: VersionRecord, data: bytes) -> list[str]:
    if len(data) != version.size_bytes:
        return [f"{_name(version)} has {len(data)} bytes, but its record says {version.size_bytes}"]
    try:
        manifest, _ = read_header(data)
        recorded = parse_manifest(version.manifest)
    except ArtifactError as error:
        return [f"{_name(version)} is not a readable artifact: {error}"]
    return (
        [] if _text(recorded) == _text(manifest) else [f"{_name(version)} has a manifest that differs from its record"]
    )


def _text(manifest: Manifest) -> str:
    # As text, because a NaN metric does not equal itself.
    return json.dumps(manifest.model_dump(mode="json"), sort_keys=True)


def _name(version: VersionRecord) -> str:
    return f"{version.tenant}:{version.name}@{version.number}"
