"""From the store to the device."""

import asyncio
from concurrent.futures import Executor
from functools import partial

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
        return await self._blobs.load(key.digest, partial(read_artifact, backbone=self.backbone, digest=key.digest))

    async def parse(self, data: bytes) -> Artifact:
        """Reads and checks `data`; an ArtifactError has every reason."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, read_artifact, data, self.backbone)

    async def install(self, artifact: Artifact) -> Resident:
        """Copies to memory that no batch reads, so this needs no turn of the runner."""
        if self.backbone.device.type == "cpu" and not artifact.manifest.task.targets:
            # There is nothing to copy and no label to tokenise, and another thread would take longer to begin.
            return self._banks.add(artifact)
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._banks.add, artifact)
