"""From the store to the device."""

import asyncio
from concurrent.futures import Executor

from peltier_adapters.artifact import Artifact, read_artifact
from peltier_adapters.bank import Banks, Resident
from peltier_adapters.store.blobs import Blobs
from peltier_backbone.load import Backbone

from peltier_server.owned import Owned


class StoreLoader:
    """The real `slots.Loader`: blobs, parsing in `executor`, banks."""

    def __init__(self, backbone: Backbone, blobs: Blobs, executor: Executor) -> None:
        self.backbone = backbone
        self._blobs = blobs
        self._executor = executor
        self._banks = Banks(backbone)

    async def fetch(self, key: Owned) -> Artifact:
        """Reads and checks the stored bytes; raises BlobError or ArtifactError."""
        return await self.parse(await self._blobs.get(key.digest), key.digest)

    async def parse(self, data: bytes, digest: str | None = None) -> Artifact:
        """Reads and checks `data`, whose `digest` the caller may know; an ArtifactError has every reason."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, read_artifact, data, self.backbone, digest)

    async def install(self, artifact: Artifact) -> Resident:
        """Copies to memory that no batch reads, so this needs no turn of the runner."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._banks.add, artifact)
