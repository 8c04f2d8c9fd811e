"""One adapter in memory."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Self

from peltier_adapters.errors import ArtifactError
from peltier_client.errors import VersionNotFound
from peltier_client.protocol import Adapter, AdapterSummary, TaskReference
from peltier_store.registry import AdapterRecord, Alias, Version

from peltier_server.catalog.entry import Entry
from peltier_server.catalog.split import Split

logger = logging.getLogger(__name__)

PRODUCTION = "production"


@dataclass(frozen=True)
class Published:
    """An adapter as it was at one moment: its live versions, at least one, and its aliases.

    It never changes; what the registry records of the adapter next becomes another one in its place, so whoever holds
    this one sees all of a change or nothing.
    """

    tenant: str
    name: str
    is_public: bool
    entries: Mapping[int, Entry]
    deleted: frozenset[int]
    aliases: Mapping[str, Alias]
    splits: Mapping[str, Split]
    newest: Entry
    preferred: Entry

    @classmethod
    def of(cls, record: AdapterRecord, known: Self | None = None) -> Self | None:
        """What the registry records; None without a version that can be served. Takes over what `known` has read."""
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
        """One version by its number."""
        if number not in self.entries:
            raise VersionNotFound(f"adapter {self.name!r} has no version {number}; its newest is {self.newest.number}")
        return self.entries[number]

    def choose(self, reference: TaskReference, request_id: str) -> Entry:
        """The version that answers `reference` in the request of this id.

        A bare name means the alias production, or else the newest version, of those that nobody advises against if
        there are any.
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
        """Which versions answer the bare name, each with its share of the requests."""
        production = self.aliases.get(PRODUCTION)
        return {self.preferred.number: 1.0} if production is None else production.split

    @property
    def meanings(self) -> dict[str, dict[int, float]]:
        """What each alias means, in order of name."""
        return {name: dict(alias.split) for name, alias in sorted(self.aliases.items())}

    @cached_property
    def summary(self) -> AdapterSummary:
        """How lists show it."""
        return AdapterSummary(
            tenant=self.tenant,
            name=self.name,
            public=self.is_public,
            num_versions=len(self.entries),
            latest=self.newest.summary,
            live=dict(self.live),
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
            aliases=self.meanings,
        )


def _read(record: AdapterRecord, known: Mapping[int, Entry]) -> dict[int, Entry]:
    """The live versions that can be read. One that cannot is logged and does not keep the others away."""
    entries: dict[int, Entry] = {}
    for version in record.versions:
        # One without a manifest that is not known either could not be read when it came.
        if version.deleted_at is None and (version.manifest or version.number in known):
            try:
                entries[version.number] = _entry(version, known.get(version.number))
            except ArtifactError as error:
                logger.error("%s:%s@%d is not served: %s", version.tenant, version.name, version.number, error)
    return entries


def _entry(version: Version, known: Entry | None) -> Entry:
    if known is None or known.digest != version.digest:
        return Entry.of(version)
    return known.marked(version)
