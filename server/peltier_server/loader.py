"""From the store to the device."""

import asyncio
from concurrent.futures import Executor

from peltier_adapters.artifact import Artifact, read_artifact
from peltier_adapters.bank import Banks, Resident
from peltier_adapters.store.blobs import Blobs
from peltier_backbone.load import Backbone

from peltier_server.owned import Owned
from peltier_server.runner import Runner


class StoreLoader:
    """The real `slots.Loader`: blobs, parsing in `executor`, banks."""

    def __init__(self, backbone: Backbone, blobs: Blobs, runner: Runner, executor: Executor) -> None:
        self.backbone = backbone
        self._blobs = blobs
        self._runner = runner
        self._executor = executor
        self._banks = Banks(backbone)

    async def fetch(self, key: Owned) -> Artifact:
        """Reads and checks the stored bytes; raises BlobError or ArtifactError."""
        return await self.parse(await self._blobs.get(key.digest))

    async def parse(self, data: bytes) -> Artifact:
        """Reads and checks `data`; an ArtifactError has every reason."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._executor, read_artifact, data, self.backbone)

    async def install(self, artifact: Artifact) -> Resident:
        """Copies into free slots, which no batch reads, so this needs no turn of the runner."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._banks.add, artifact)

    async def remove(self, resident: Resident) -> None:
        """Frees the slots between two batches, because the one that runs may still read them."""
        await self._runner.between_batches(lambda: self._banks.remove(resident), resident)

    def reads(self, resident: Resident) -> bool:
        """A computation that was given up may still read the slots."""
        return self._runner.reads(resident)
