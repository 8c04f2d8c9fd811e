"""What is published, in memory: the database is never on the way of a prediction."""

import logging
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from peltier_adapters.errors import ArtifactError
from peltier_adapters.manifest import Manifest, parse_manifest
from peltier_adapters.registry import Version
from peltier_client.errors import AdapterNotFound, VersionNotFound
from peltier_client.protocol import Adapter, AdapterRef, AdapterVersion, TaskReference, TaskSummary

from peltier_server.caller import TENANT
from peltier_server.origin import Origin

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Entry:
    """One live version, with its manifest read."""

    version: Version
    manifest: Manifest

    @classmethod
    def of(cls, version: Version) -> "Entry":
        """Reads the manifest that the registry keeps as text."""
        return cls(version, parse_manifest(version.manifest))

    @property
    def digest(self) -> str:
        """The identity of its bytes."""
        return self.version.digest

    def reference(self) -> AdapterRef:
        """How a prediction names it."""
        version = self.version
        return AdapterRef(
            tenant=version.tenant,
            name=version.name,
            version=version.number,
            digest=version.digest,
            preset=version.preset,
        )

    def on_the_wire(self) -> AdapterVersion:
        """How lists show it. JSON has no NaN, so a metric that is not finite is left out."""
        version, task = self.version, self.manifest.task
        return AdapterVersion(
            tenant=version.tenant,
            name=version.name,
            version=version.number,
            digest=version.digest,
            size_bytes=version.size_bytes,
            preset=version.preset,
            created_at=version.created_at,
            task=TaskSummary(type=task.type, labels=list(task.labels), inputs=task.inputs, max_length=task.max_length),
            metrics={name: value for name, value in self.manifest.training.metrics.items() if math.isfinite(value)},
        )


class Catalog:
    """Every live version of the default tenant. Belongs to the event loop; follows the registry, never leads it."""

    def __init__(self) -> None:
        self._adapters: dict[str, dict[int, Entry]] = {}

    @classmethod
    def of(cls, versions: Iterable[Version]) -> "Catalog":
        """The catalog of a registry's versions. One that cannot be read is logged and does not keep the others away."""
        catalog = cls()
        for version in versions:
            try:
                catalog.add(Entry.of(version))
            except ArtifactError as error:
                logger.error("%s@%d is not served: %s", version.name, version.number, error)
        return catalog

    def __len__(self) -> int:
        return len(self._adapters)

    def add(self, entry: Entry) -> None:
        """A version goes live."""
        self._adapters.setdefault(entry.version.name, {})[entry.version.number] = entry

    def remove(self, name: str, number: int) -> None:
        """A version is gone; with its last version the adapter is."""
        versions = self._adapters.get(name, {})
        versions.pop(number, None)
        if not versions:
            self._adapters.pop(name, None)

    def resolve(self, reference: TaskReference, origin: Origin) -> Entry:
        """The version that answers `reference`; a bare name means the newest."""
        if reference.tenant not in (None, TENANT):
            raise AdapterNotFound(f"adapter {str(reference)!r} does not exist")
        if reference.alias is not None:
            raise VersionNotFound(f"adapter {reference.name!r} has no alias {reference.alias!r}")
        versions = self._versions(reference.name)
        return self.version(reference.name, reference.version or max(versions))

    def version(self, name: str, number: int) -> Entry:
        """One version by its number."""
        versions = self._versions(name)
        if number not in versions:
            raise VersionNotFound(f"adapter {name!r} has no version {number}; its newest is {max(versions)}")
        return versions[number]

    def versions(self, name: str) -> list[Entry]:
        """Every live version of an adapter, newest first."""
        return [entry for _, entry in sorted(self._versions(name).items(), reverse=True)]

    def adapter(self, name: str) -> Adapter:
        """An adapter with its newest version."""
        versions = self.versions(name)
        newest = versions[0].on_the_wire()
        return Adapter(tenant=newest.tenant, name=name, num_versions=len(versions), latest=newest)

    def names(self, *, after: str, containing: str, limit: int) -> list[str]:
        """At most `limit` names that follow `after` and contain `containing`, in order."""
        found = (name for name in sorted(self._adapters) if name > after and containing in name)
        return list(islice(found, limit))

    def entries(self) -> Iterator[Entry]:
        """Every live version."""
        for versions in self._adapters.values():
            yield from versions.values()

    def holds(self, digest: str) -> bool:
        """Some live version has these bytes."""
        return any(entry.digest == digest for entry in self.entries())

    def find(self, name: str, digest: str) -> Entry | None:
        """The version of `name` that has these bytes."""
        versions = self._adapters.get(name, {}).values()
        return next((entry for entry in versions if entry.digest == digest), None)

    def _versions(self, name: str) -> dict[int, Entry]:
        if name not in self._adapters:
            raise AdapterNotFound(f"adapter {name!r} does not exist")
        return self._adapters[name]
