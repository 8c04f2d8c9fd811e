"""A worker with a short lease, as a process: `python -m tests.training.service.short_worker STORE REGISTRY BACKBONE
NAME`."""

import asyncio
import signal
import sys
from datetime import timedelta

from peltier_store.blobs.blobs import Blobs
from peltier_store.location import StoreLocation
from peltier_store.registry.extensions import queue, training_holder
from peltier_store.registry.extensions.registry import Registry
from peltier_training.processes import choose_threads
from peltier_training.service.lease import Intervals, WorkerContext
from peltier_training.service.request import Machine
from peltier_training.service.worker import TrainingWorker

LEASE_SECONDS = 5.0
INTERVALS = Intervals(idle_seconds=0.1, renew_seconds=0.3, checkpoint_seconds=0.2, patience_seconds=3.0)


async def work(store: str, registry: str, backbone: str, name: str) -> None:
    queue.LEASE = timedelta(seconds=LEASE_SECONDS)
    # A training is not at fault if its workers are killed before they have saved a checkpoint, however often.
    training_holder.MAX_ATTEMPTS = 1_000
    location = StoreLocation.of(store, registry)
    blobs = await asyncio.to_thread(Blobs.open, location.blobs)
    opened = await Registry.open(location.registry)
    worker = TrainingWorker(
        WorkerContext(opened, blobs, name, INTERVALS), Machine(backbone, "cpu", threads=choose_threads(1))
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.stop)
    try:
        await worker.run()
    finally:
        await opened.close()


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))
