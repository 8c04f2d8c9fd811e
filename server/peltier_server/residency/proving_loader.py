"""Runs the golden examples of adapters from the store before they answer on a server in another precision."""

import asyncio

from peltier_adapters.artifact.artifact import Artifact
from peltier_adapters.errors import ArtifactError
from peltier_adapters.golden.golden import golden_rows, judge_stored
from peltier_adapters.residency.bank import Resident

from peltier_server.queue.batcher import Batcher
from peltier_server.queue.ticket import Terms
from peltier_server.residency.lease import AdapterKey
from peltier_server.residency.loader import StoreLoader


class ProvingLoader:
    """A `AdapterLoader` that runs the golden examples of each adapter when it first comes from the store.

    A server in another precision may have published it: replicas share a store, and a server may be started again with
    another `dtype`. The examples are ordinary rows of the tenant that asks for the adapter first. Their copy of the
    adapter is in memory only while they run, and is not counted in the device's bytes; there are at most as many as
    fetches in progress.
    """

    def __init__(self, loader: StoreLoader, batcher: Batcher) -> None:
        self._loader = loader
        self._batcher = batcher
        self._proved: set[str] = set()

    async def fetch(self, key: AdapterKey) -> Artifact:
        """Reads and checks the stored bytes; raises BlobError or ArtifactError."""
        return await self._loader.fetch(key)

    async def prove(self, artifact: Artifact, tenant: str) -> None:
        """Runs the golden examples; raises InferenceFailed, QueueFull, or an ArtifactError that says how their outputs
        differ."""
        if artifact.digest in self._proved:
            return
        backbone, manifest = self._loader.backbone, artifact.manifest
        resident = await self._loader.install(artifact)
        rows = await asyncio.to_thread(golden_rows, backbone, manifest, resident)
        outcome = await self._batcher.compute(rows, Terms(tenant))
        if reasons := judge_stored(backbone, manifest, outcome.outputs):
            raise ArtifactError(reasons)
        self._proved.add(artifact.digest)

    def device_bytes(self, artifact: Artifact) -> int:
        """The bytes of its served parts on the device."""
        return self._loader.device_bytes(artifact)

    async def install(self, artifact: Artifact) -> Resident:
        """Copies to memory that no batch reads."""
        return await self._loader.install(artifact)
