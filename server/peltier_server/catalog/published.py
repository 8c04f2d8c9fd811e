"""One published adapter in memory."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from peltier_adapters.errors import ArtifactError
from peltier_client.errors import VersionNotFound
from peltier_client.protocol import Adapter, AdapterSummary, TaskReference
from peltier_store.registry import AdapterRecord, AliasRecord, VersionRecord

from peltier_server.catalog.entry import Entry
from peltier_server.catalog.split import Split

logger = logging.getLogger(__name__)

PRODUCTION = "production"
# Bounds the size of lists.
_MAX_LISTED_ALIASES = 8


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
    splits: Mapping[str, Split]
    newest: Entry
    preferred: Entry

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
                alias.alias: Split(alias.split, f"{record.tenant}:{record.name}@{alias.alias}")
                for alias in record.aliases
            },
            newest=entries[max(entries)],
            preferred=max(current or entries.values(), key=lambda entry: entry.number),
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

    def versions(self, *, before: int | None, limit: int) -> list[Entry]:
        """At most `limit` live versions before that number, newest first."""
        numbers = sorted(number for number in self.entries if before is None or number < before)
        return [self.entries[number] for number in reversed(numbers[-limit:])]

    @property
    def live(self) -> Mapping[int, float]:
        """The versions that answer the bare name, each with its share of requests."""
        production = self.aliases.get(PRODUCTION)
        return {self.preferred.number: 1.0} if production is None else production.split

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
