"""One live version in memory."""

import math
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from typing import Any

from peltier_adapters.artifact.manifest import Manifest, parse_manifest
from peltier_adapters.spec.tasks import TaskSpec
from peltier_client.protocol import AdapterRef, AdapterVersion, TaskOutline, TaskSummary, VersionSummary
from peltier_store.registry import VersionRecord
from pydantic_core import to_json

from peltier_server.context import VersionLabels
from peltier_server.residency.lease import AdapterKey


class LabelBytes:
    """The bytes of a task's labels in JSON."""

    def __init__(self, labels: Sequence[str]) -> None:
        lengths = sorted((len(to_json(label)) for label in labels), reverse=True)
        self._of_longest = array("q", accumulate(lengths, initial=0))

    def __len__(self) -> int:
        return len(self._of_longest) - 1

    def of_longest(self, count: int) -> int:
        """The bytes of the `count` longest labels together."""
        return self._of_longest[min(count, len(self))]


@dataclass(frozen=True)
class Entry:
    """A version with the parts of its manifest that serving needs. The text of the manifest is dropped to save memory.

    `fingerprint` is that of the backbone on which it was trained. An embedding has `num_dimensions` values; other tasks
    have 0.
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
        num_dimensions = manifest.head.outputs if manifest.task.type == "embedding" else 0
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
    def label_bytes(self) -> LabelBytes:
        """The bytes of its labels in JSON."""
        return LabelBytes(self.task.labels)

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
