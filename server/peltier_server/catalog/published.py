"""One published adapter in memory: its live versions, its aliases, and the splits of requests between versions."""

import logging
import math
from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import blake2b
from itertools import accumulate
from typing import Any, Self

from peltier_adapters.artifact.manifest import Manifest, parse_manifest
from peltier_adapters.errors import ArtifactError
from peltier_adapters.spec.tasks import TaskSpec
from peltier_client.errors import VersionNotFound
from peltier_client.protocol.adapters import (
    Adapter,
    AdapterPin,
    AdapterSummary,
    AdapterVersion,
    TaskOutline,
    TaskSummary,
    VersionSummary,
)
from peltier_client.protocol.names import TaskReference
from peltier_client.protocol.predict import AdapterRef
from peltier_store.registry.records import AdapterRecord, AliasRecord, VersionRecord
from pydantic_core import to_json

from peltier_server.context import AdapterKey, VersionLabels

logger = logging.getLogger(__name__)

PRODUCTION = "production"
# Bounds the size of lists.
_MAX_LISTED_ALIASES = 8
_SUM_TOLERANCE = 1e-6
_HASH_BYTES = 8
_KEY_BYTES = 32


@dataclass(frozen=True)
class Entry:
    """A version with the parts of its manifest that serving needs. The text of the manifest is dropped to save memory.

    `fingerprint` is that of the backbone on which it was trained. An embedding has `num_dimensions` values, a
    sparse one at most as many terms; other tasks have 0.
    """

    version: VersionRecord
    task: TaskSpec
    fingerprint: str
    metrics: Mapping[str, float]
    num_dimensions: int = 0

    @classmethod
    def of(cls, version: VersionRecord, manifest: Manifest | None = None) -> "Entry":
        """Parses the version's manifest unless the caller gives it; raises ArtifactError if it cannot be parsed."""
        manifest = manifest or parse_manifest(version.manifest)
        recorded = manifest.training.metrics
        # JSON has no NaN.
        metrics = {name: value for name, value in recorded.items() if math.isfinite(value)}
        num_dimensions = (manifest.head.terms or manifest.head.outputs) if manifest.task.embeds else 0
        fingerprint = manifest.backbone.fingerprint
        return cls(replace(version, manifest=""), manifest.task, fingerprint, metrics, num_dimensions)

    def marked(self, version: VersionRecord) -> "Entry":
        """The same version with the current marks of `version`; its manifest never changes."""
        bare = replace(version, manifest="")
        return self if bare == self.version else replace(self, version=bare)

    @property
    def number(self) -> int:
        """The number of the version."""
        return self.version.number

    @property
    def digest(self) -> str:
        """The digest of its bytes."""
        return self.version.digest

    @cached_property
    def owned(self) -> AdapterKey:
        """Its key in memory."""
        return AdapterKey(self.version.tenant, self.digest)

    @cached_property
    def labels(self) -> VersionLabels:
        """Its labels in metrics."""
        return VersionLabels(self.version.tenant, self.version.name, str(self.number))

    @cached_property
    def mean_label_bytes(self) -> float:
        """The mean of the bytes of its labels in JSON."""
        labels = self.task.labels
        return sum(len(to_json(label)) for label in labels) / max(1, len(labels))

    @cached_property
    def reference(self) -> AdapterRef:
        """Its reference in a prediction."""
        version = self.version
        return AdapterRef(
            tenant=version.tenant,
            name=version.name,
            version=version.number,
            digest=version.digest,
            preset=version.preset,
        )

    @cached_property
    def summary(self) -> VersionSummary:
        """Its entry in lists."""
        task = self.task
        outline = TaskOutline(
            type=task.type, num_labels=len(task.labels), inputs=task.inputs, max_length=task.max_length
        )
        return VersionSummary(**self._of_any_task, task=outline)

    @property
    def on_the_wire(self) -> AdapterVersion:
        """The complete version in the API's form."""
        task = self.task
        summary = TaskSummary(type=task.type, labels=list(task.labels), inputs=task.inputs, max_length=task.max_length)
        return AdapterVersion(**self._of_any_task, task=summary, metrics=dict(self.metrics))

    @property
    def _of_any_task(self) -> dict[str, Any]:
        version = self.version
        return {
            "tenant": version.tenant,
            "name": version.name,
            "version": version.number,
            "digest": version.digest,
            "size_bytes": version.size_bytes,
            "preset": version.preset,
            "created_at": version.created_at,
            "created_by": version.created_by,
            "deprecation": version.deprecation,
        }


class TrafficSplit:
    """The versions of an alias, each with its share of requests.

    The hash of the request id chooses the version, so the same id always gets the same version, and many ids get the
    shares. If the shares of two versions change, as few ids as possible change their version; with three or more
    versions it may be more. `salt` makes the splits of different aliases independent.
    """

    def __init__(self, shares: Mapping[int, float], salt: str) -> None:
        self._numbers = [number for number in sorted(shares) if shares[number] > 0]
        self._bounds = list(accumulate(shares[number] for number in self._numbers))
        self._key = blake2b(salt.encode(), digest_size=_KEY_BYTES).digest()

    def choose(self, request_id: str) -> int:
        """The version that answers the request with this id."""
        if len(self._numbers) == 1:
            return self._numbers[0]
        digest = blake2b(request_id.encode(), digest_size=_HASH_BYTES, key=self._key).digest()
        point = int.from_bytes(digest, "big") / 2 ** (8 * _HASH_BYTES)
        # If the shares sum to slightly less than 1, the last version gets the rest.
        return self._numbers[min(bisect_right(self._bounds, point), len(self._numbers) - 1)]


def split_faults(shares: Mapping[int, float]) -> list[str]:
    """Every reason why these shares are invalid, without a look at the versions."""
    if not shares:
        return ["versions is empty: a split names at least one version"]
    faults = [
        f"version {number} has the share {share}: it must be a number above 0"
        for number, share in sorted(shares.items())
        if not (math.isfinite(share) and share > 0)
    ]
    total = math.fsum(shares.values()) if not faults else 1.0
    if abs(total - 1) > _SUM_TOLERANCE:
        faults.append(f"the shares sum to {total:g}: they must sum to 1")
    return faults


@dataclass(frozen=True)
class Published:
    """A snapshot of an adapter: its live versions, at least one, and its aliases.

    It never changes. A change in the registry replaces it by a new one, so a reader sees all of the change or nothing.
    """

    tenant: str
    name: str
    is_public: bool
    entries: Mapping[int, Entry]
    deleted: frozenset[int]
    aliases: Mapping[str, AliasRecord]
    splits: Mapping[str, TrafficSplit]
    newest: Entry
    preferred: Entry
    pin: AdapterPin | None = None

    @classmethod
    def of(cls, record: AdapterRecord, known: Self | None = None) -> Self | None:
        """The adapter of a record; None without a readable live version. Reuses the entries of `known`."""
        entries = _read(record, {} if known is None else known.entries)
        if not entries:
            return None
        current = [entry for entry in entries.values() if entry.version.deprecated_at is None]
        return cls(
            tenant=record.tenant,
            name=record.name,
            is_public=record.is_public,
            entries=entries,
            deleted=frozenset(version.number for version in record.versions if version.deleted_at is not None),
            aliases={alias.alias: alias for alias in record.aliases},
            splits={
                alias.alias: TrafficSplit(alias.split, f"{record.tenant}:{record.name}@{alias.alias}")
                for alias in record.aliases
            },
            newest=entries[max(entries)],
            preferred=max(current or entries.values(), key=lambda entry: entry.number),
            pin=record.pin,
        )

    def version(self, number: int) -> Entry:
        """The version with this number; raises `VersionNotFound`."""
        if number not in self.entries:
            raise VersionNotFound(f"adapter {self.name!r} has no version {number}; its newest is {self.newest.number}")
        return self.entries[number]

    def choose(self, reference: TaskReference, request_id: str) -> Entry:
        """The version that answers `reference` in the request with this id.

        A bare name means the alias production. Without that alias it means the newest version that is not deprecated,
        or the newest version if all are.
        """
        if reference.version is not None:
            return self.version(reference.version)
        if reference.alias is None and PRODUCTION not in self.splits:
            return self.preferred
        alias = reference.alias or PRODUCTION
        if alias not in self.splits:
            raise VersionNotFound(f"adapter {self.name!r} has no alias {alias!r}")
        return self.version(self.splits[alias].choose(request_id))

    def meant_by(self, reference: TaskReference) -> list[Entry]:
        """The versions that may answer `reference`; raises `VersionNotFound`."""
        if reference.version is not None:
            return [self.version(reference.version)]
        if reference.alias is not None and reference.alias not in self.aliases:
            raise VersionNotFound(f"adapter {self.name!r} has no alias {reference.alias!r}")
        split = self.live if reference.alias is None else self.aliases[reference.alias].split
        return [self.version(number) for number in sorted(split)]

    def versions(self, *, before: int | None, limit: int) -> list[Entry]:
        """At most `limit` live versions before that number, newest first."""
        numbers = sorted(number for number in self.entries if before is None or number < before)
        return [self.entries[number] for number in reversed(numbers[-limit:])]

    @property
    def live(self) -> Mapping[int, float]:
        """The versions that answer the bare name, each with its share of requests."""
        production = self.aliases.get(PRODUCTION)
        return {self.preferred.number: 1.0} if production is None else production.split

    def answers_bare(self, entry: Entry) -> bool:
        """Whether requests with the bare name may get this version."""
        production = self.aliases.get(PRODUCTION)
        return entry is self.preferred if production is None else entry.number in production.split

    @property
    def answering(self) -> list[Entry]:
        """The versions that answer the bare name, without those whose manifest cannot be read here."""
        return [self.entries[number] for number in sorted(self.live) if number in self.entries]

    @property
    def splits_by_alias(self) -> dict[str, dict[int, float]]:
        """The split of each alias, in order of name."""
        return {name: dict(alias.split) for name, alias in sorted(self.aliases.items())}

    @cached_property
    def summary(self) -> AdapterSummary:
        """Its entry in lists."""
        return AdapterSummary(
            tenant=self.tenant,
            name=self.name,
            public=self.is_public,
            num_versions=len(self.entries),
            latest=self.newest.summary,
            live=dict(self.live),
            aliases=sorted(self.aliases)[:_MAX_LISTED_ALIASES],
        )

    @property
    def on_the_wire(self) -> Adapter:
        """The adapter with its newest version and its aliases."""
        return Adapter(
            tenant=self.tenant,
            name=self.name,
            public=self.is_public,
            num_versions=len(self.entries),
            latest=self.newest.on_the_wire,
            live=dict(self.live),
            aliases=self.splits_by_alias,
        )


def _read(record: AdapterRecord, known: Mapping[int, Entry]) -> dict[int, Entry]:
    """The live versions with a readable manifest; the others are logged."""
    entries: dict[int, Entry] = {}
    for version in record.versions:
        # A version without a manifest that is not known had an unreadable manifest when it was new.
        if version.deleted_at is None and (version.manifest or version.number in known):
            try:
                entries[version.number] = _entry(version, known.get(version.number))
            except ArtifactError as error:
                logger.error("%s:%s@%d is not served: %s", version.tenant, version.name, version.number, error)
    return entries


def _entry(version: VersionRecord, known: Entry | None) -> Entry:
    if known is None or known.digest != version.digest:
        return Entry.of(version)
    return known.marked(version)
