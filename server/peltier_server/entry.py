"""One live version in memory."""

import math
from dataclasses import dataclass
from functools import cached_property

from peltier_adapters.manifest import Manifest, parse_manifest
from peltier_adapters.registry import Version
from peltier_client.protocol import AdapterRef, AdapterVersion, TaskSummary


@dataclass(frozen=True)
class Entry:
    """A version with its manifest read."""

    version: Version
    manifest: Manifest

    @classmethod
    def of(cls, version: Version) -> "Entry":
        """Reads the manifest that the registry keeps as text; raises ArtifactError where it cannot be read."""
        return cls(version, parse_manifest(version.manifest))

    @property
    def number(self) -> int:
        """Its number among the adapter's versions."""
        return self.version.number

    @property
    def digest(self) -> str:
        """The identity of its bytes."""
        return self.version.digest

    @cached_property
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

    @cached_property
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
            created_by=version.created_by,
            deprecation=version.deprecation,
            task=TaskSummary(type=task.type, labels=list(task.labels), inputs=task.inputs, max_length=task.max_length),
            metrics={name: value for name, value in self.manifest.training.metrics.items() if math.isfinite(value)},
        )
