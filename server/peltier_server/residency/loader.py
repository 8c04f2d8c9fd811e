"""Loads adapters from the store to the device, and proves them on a server in another precision."""

import asyncio
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import contextmanager
from functools import partial

from peltier_adapters.artifact.artifact import Artifact, load_stored, read_artifact
from peltier_adapters.artifact.source import ByteSource
from peltier_adapters.errors import ArtifactError
from peltier_adapters.golden.golden import golden_rows, judge_stored, keep_recorded
from peltier_adapters.residency.bank import Banks, Resident
from peltier_adapters.residency.served import device_bytes
from peltier_adapters.spec.cost import AdapterCost
from peltier_adapters.spec.parts import served_parts
from peltier_backbone.backbone import Backbone
from peltier_backbone.machine.memory import is_out_of_memory
from peltier_client.errors import Unavailable
from peltier_store.blobs.blobs import Blobs

from peltier_server import retry_hints
from peltier_server.context import AdapterKey
from peltier_server.queue.batcher import Batcher
from peltier_server.queue.ticket import Terms

# Installed within about a millisecond.
_QUICK_BYTES = 1024 * 1024


class StoreLoader:
    """Reads blobs, parses in `executor`, and installs in banks, without blocking the event loop. It refuses an adapter
    that costs more than `max_adapter_cost` times the backbone (`AdapterCost`), also one stored before.

    With a `batcher` it runs the golden examples of each adapter when it first comes from the store. A server in another
    precision may have published it: replicas share a store, and a server may be started again with another `dtype`. The
    examples are ordinary rows of the tenant that asks for the adapter first. Their copy of the adapter is in memory
    only while they run, and is not counted in the device's bytes; there are at most as many as fetches in progress.
    """

    def __init__(
        self,
        backbone: Backbone,
        blobs: Blobs,
        executor: Executor,
        *,
        max_adapter_cost: float = 1.0,
        batcher: Batcher | None = None,
    ) -> None:
        self.backbone = backbone
        self._batcher = batcher
        self._proved: set[str] = set()
        self._max_adapter_cost = max_adapter_cost
        self._blobs = blobs
        self._executor = executor
        self._banks = Banks(backbone)

    async def fetch(self, key: AdapterKey) -> Artifact:
        """Reads and checks the stored bytes; raises BlobError or ArtifactError."""
        with _telling_lack_of_memory():
            return await self._blobs.load(key.digest, partial(self._load, digest=key.digest))

    async def prove(self, artifact: Artifact, tenant: str) -> None:
        """Runs the golden examples, unless the server has no need to; raises InferenceFailed, QueueFull, or an
        ArtifactError that says how their outputs differ."""
        if self._batcher is None or artifact.digest in self._proved:
            return
        manifest = artifact.manifest
        resident = await self.install(artifact)
        rows = await asyncio.to_thread(golden_rows, self.backbone, manifest, resident)
        outcome = await self._batcher.compute(rows, Terms(tenant), reduce=keep_recorded)
        if reasons := judge_stored(self.backbone, manifest, outcome.outputs):
            raise ArtifactError(reasons)
        self._proved.add(artifact.digest)

    async def parse(self, data: bytes) -> Artifact:
        """Reads and checks `data`; an ArtifactError has every reason."""
        return await asyncio.get_running_loop().run_in_executor(self._executor, self._read, data)

    def device_bytes(self, artifact: Artifact) -> int:
        """The bytes of its served parts on the device."""
        return device_bytes(artifact.manifest.parts, self.backbone)

    async def install(self, artifact: Artifact) -> Resident:
        """Copies to memory that no batch reads, so the runner may compute meanwhile."""
        with _telling_lack_of_memory():
            if self._is_quick(artifact):
                return self._banks.add(artifact)
            return await asyncio.get_running_loop().run_in_executor(self._executor, self._banks.add, artifact)

    def _load(self, source: ByteSource, digest: str) -> Artifact:
        return self._accept(load_stored(source, self.backbone, digest))

    def _read(self, data: bytes) -> Artifact:
        return self._accept(read_artifact(data, self.backbone))

    def _accept(self, artifact: Artifact) -> Artifact:
        cost = AdapterCost.of(artifact.manifest.parts, self.backbone.config)
        reasons = cost.problems(self._max_adapter_cost, "max_adapter_cost")
        if reasons:
            raise ArtifactError(reasons)
        return artifact

    def _is_quick(self, artifact: Artifact) -> bool:
        """Whether there are no labels to tokenise and little to copy or build, so that starting a thread would take
        longer."""
        is_here = self.backbone.device.type == "cpu" and not artifact.manifest.task.targets
        parts = artifact.manifest.parts
        return is_here and (self.device_bytes(artifact) <= _QUICK_BYTES or served_parts(parts) == parts)


@contextmanager
def _telling_lack_of_memory() -> Iterator[None]:
    """Lets who waits for an adapter come back, if the block lacks memory: its size has been admitted."""
    try:
        yield
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        sentence = "the server has too little memory to load this adapter at the moment"
        raise Unavailable(sentence, retry_after=retry_hints.SOON) from error
