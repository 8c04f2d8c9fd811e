"""The components of a ready server, opened in order and closed in reverse order."""

import asyncio
import logging
import math
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack
from typing import Self

from peltier_adapters.gpu.warm_up import warm_up
from peltier_backbone.backbone import Backbone
from peltier_backbone.load import load_backbone
from peltier_backbone.machine.heap import give_back_freed_memory
from peltier_backbone.native.choice import use_kernels
from peltier_client.errors import NotFound
from peltier_store.blobs.blobs import Blobs
from peltier_store.location import require_own, require_registry_of
from peltier_store.registry.extensions.registry import Registry

from peltier_server.auth.authenticator import Authenticator
from peltier_server.auth.keyring import TENANT
from peltier_server.catalog.catalog import Catalog
from peltier_server.catalog.examples import publish_examples
from peltier_server.catalog.publisher import Publisher, Store
from peltier_server.catalog.purge import PurgeTask
from peltier_server.catalog.store_watch import StoreWatch
from peltier_server.catalog.sync import RegistrySync
from peltier_server.catalog.version_admin import VersionAdmin
from peltier_server.context import AdapterKey
from peltier_server.fairness.preparation import Preparation
from peltier_server.inference.predictor import Guards, Predictor
from peltier_server.inference.quarantine import Quarantine
from peltier_server.metrics.metrics import Metrics
from peltier_server.queue.batch import BatchBounds
from peltier_server.queue.batcher import Batcher
from peltier_server.queue.prices import Prices
from peltier_server.residency.loader import StoreLoader
from peltier_server.residency.pins import Pins, WarmList
from peltier_server.residency.slots import Slots
from peltier_server.residency.tiers import MemoryBudget
from peltier_server.runner.supervisor import Watchdog, WorkerSupervisor
from peltier_server.settings import CoreSettings

logger = logging.getLogger(__name__)

_NUM_WORKERS = 4
# A row with more than this share of a batch's tokens is computed in the background, because others would wait for it.
_LONG_SHARE = 1 / 4
# Until benchmarks/gpu/run.py has passed on one.
_EXPERIMENTAL_DEVICES = ("cuda",)
# A thread that is killed during a forward pass can change the exit status of the process.
_MAX_JOIN_SECONDS = 10.0


def _batch_bounds(settings: CoreSettings, backbone: Backbone) -> BatchBounds:
    queue = settings.queue
    # A GPU computes one thing at a time, whatever the priorities of threads.
    max_short = queue.max_batch_tokens * _LONG_SHARE if backbone.device.type == "cpu" else math.inf
    return BatchBounds(queue.max_batch_rows, queue.max_batch_tokens, queue.max_shared_batch_seconds, max_short)


class Service:
    """Everything that answers requests. `open` loads and starts it; `close` finishes accepted requests."""

    def __init__(
        self, settings: CoreSettings, backbone: Backbone, store: Store, metrics: Metrics, preparation: Preparation
    ) -> None:
        self.settings = settings
        self.backbone = backbone
        self.store = store
        self.metrics = metrics
        self.catalog = store.catalog
        queue, limits, memory = settings.queue, settings.limits, settings.memory
        self.batcher = Batcher(
            _batch_bounds(settings, backbone),
            max_queue_tokens=queue.max_queue_tokens,
            max_decode_rows=queue.max_decode_rows,
            weight_of=preparation.enforcer.weight,
            prices=Prices(backbone),
        )
        metrics.follow_queue(self.batcher.queued_tokens_by_tenant, queue.max_queue_tokens)
        metrics.set_bounds(batch_tokens=queue.max_batch_tokens, device=memory.device_bytes, host=memory.host_bytes)
        self._supervisor = WorkerSupervisor(
            backbone,
            self.batcher,
            metrics,
            num_threads=settings.compute.threads,
            cuda_graphs=settings.compute.cuda_graphs,
        )
        self.watchdog = Watchdog(
            self._supervisor,
            metrics,
            max_batch_seconds=queue.max_batch_seconds,
            max_restarts=queue.max_runner_restarts,
        )
        self._workers = ThreadPoolExecutor(_NUM_WORKERS, thread_name_prefix="loader")
        loader = StoreLoader(
            backbone,
            store.blobs,
            self._workers,
            max_adapter_cost=limits.max_adapter_cost,
            # The scores of an adapter that another server accepted in float32 may differ too much here.
            batcher=None if backbone.precision == "float32" else self.batcher,
        )
        budget = MemoryBudget(memory.device_bytes, memory.host_bytes, memory.max_load_wait_seconds)
        self.slots = Slots(loader, budget, metrics)
        self.pins = Pins(self.slots, self.catalog.pinned, metrics)
        self.warm_list = WarmList(self.slots, self.pins, metrics, memory.max_warm_seconds)
        self.quarantine = Quarantine(metrics)
        guards = Guards(preparation, self.quarantine, metrics)
        self.predictor = Predictor(backbone, self.catalog, self.slots, self.batcher, guards)
        self.publisher = Publisher(store, loader, self.slots, self.batcher, metrics)
        self.version_admin = VersionAdmin(store, self.pins)
        self.store_watch = StoreWatch(store.sync, store.blobs)
        self._purge_task = PurgeTask(
            store.registry, store.blobs, settings.store.undelete_seconds, settings.feedback.feedback_seconds
        )

    @classmethod
    async def open(
        cls, settings: CoreSettings, metrics: Metrics, authenticator: Authenticator, preparation: Preparation
    ) -> Self:
        """Opens the store, loads the backbone, starts the runner and publishes the examples."""
        async with AsyncExitStack() as opened:
            blobs = await asyncio.to_thread(Blobs.open, settings.store.blobs)
            # First, because opening the registry would create a missing one.
            await require_registry_of(blobs, settings.store.registry)
            registry = await Registry.open(settings.store.registry)
            opened.push_async_callback(registry.close)
            await require_own(registry, blobs)
            authenticator.keyring.now = registry.now
            catalog = Catalog()
            sync = RegistrySync(registry, catalog, authenticator)
            await sync.catch_up()
            compute = settings.compute
            logger.info("loading backbone %s", compute.backbone)
            await asyncio.to_thread(use_kernels, compute.kernels)
            backbone = await asyncio.to_thread(
                load_backbone, compute.backbone, device=compute.device, dtype=compute.dtype
            )
            await asyncio.to_thread(warm_up, backbone)
            give_back_freed_memory()  # of the conversion of the weights, which no batch needs
            _log_kernels(backbone)
            _warn_about_other_backbones(catalog, backbone)
            store = Store(blobs, registry, catalog, sync, preparation.enforcer.bounds_storage)
            service = cls(settings, backbone, store, metrics, preparation)
            for device in service.experimental:
                logger.warning("device %r is experimental: this release has not been tested on one", device)
            service._supervisor.start()
            sync.start(service.slots, service.pins.wake)
            service._purge_task.start()
            service.store_watch.start()
            opened.push_async_callback(service._stop)
            if settings.store.publish is not None:
                await publish_examples(
                    settings.store.publish, registry, service.publisher, settings.limits.max_artifact_bytes
                )
            service._start_memory()
            opened.pop_all()
        return service

    @property
    def experimental(self) -> tuple[str, ...]:
        """The devices in use on which this code has not been tested."""
        return tuple(device for device in _EXPERIMENTAL_DEVICES if device == self.backbone.device.type)

    async def close(self) -> None:
        """Computes the waiting rows, then stops."""
        await self._stop()
        await self.store.registry.close()

    def _start_memory(self) -> None:
        """Loads the warm list and follows the pins, now that there is a runner."""
        self.pins.start()
        names = dict[AdapterKey, str]()
        for name in self.settings.memory.warm_names:
            try:
                names |= dict.fromkeys((entry.owned for entry in self.catalog.meant_by(name, TENANT)), name)
            except NotFound as error:
                self.metrics.warm_failures.inc()
                logger.warning("%s of the warm list cannot be loaded: %s", name, error)
        self.warm_list.start(names, len(self.catalog.pinned()))

    async def _stop(self) -> None:
        await self.warm_list.close()
        await self.pins.close()
        await self.watchdog.close()
        await self.store_watch.close()
        await self._purge_task.close()
        await self.store.sync.close()
        self.batcher.close()
        await asyncio.to_thread(self._supervisor.join, _MAX_JOIN_SECONDS)
        await self.slots.close()
        self._workers.shutdown(wait=False, cancel_futures=True)


def _log_kernels(backbone: Backbone) -> None:
    names = dict(backbone.kernels)
    answers = names.pop("answers")
    shown = ", ".join(f"{name}: {kernel}" for name, kernel in names.items())
    logger.info("kernels of %s in %s (%s); answers are %s", backbone.name, backbone.precision, shown, answers)


def _warn_about_other_backbones(catalog: Catalog, backbone: Backbone) -> None:
    others = [entry for entry in catalog.entries() if entry.fingerprint != backbone.fingerprint]
    if others:
        logger.warning(
            "%d versions were trained on another backbone than %s and cannot answer, such as %s version %d",
            len(others),
            backbone.name,
            others[0].version.name,
            others[0].version.number,
        )
