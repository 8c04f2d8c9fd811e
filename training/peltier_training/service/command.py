"""`peltier worker`. torch and transformers are imported by the processes of trainings only."""

import asyncio
import logging
import os
import signal
from pathlib import Path
from typing import Annotated

import typer
from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_store.blobs.blobs import Blobs
from peltier_store.commands import RegistryUrl, StoreUrl
from peltier_store.location import StoreLocation, require_own
from peltier_store.registry.extensions.queue import create_holder_name
from peltier_store.registry.extensions.registry import Registry

from peltier_training.processes import ThreadsOption, choose_threads
from peltier_training.service.lease import WorkerContext
from peltier_training.service.request import Machine
from peltier_training.service.worker import TrainingWorker


def worker(  # noqa: PLR0913 - one parameter a flag
    *,
    store: StoreUrl = ".peltier",
    registry: RegistryUrl = "",
    backbone: Annotated[str, typer.Option(help="A directory, a hub id or minilm, as for peltier serve.")] = "minilm",
    threads: ThreadsOption = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    dtype: Annotated[str, typer.Option(help="float32, bfloat16, or on a CPU int8.")] = "float32",
    name: Annotated[
        str | None, typer.Option(help="Name of this worker, which no other has. Default: HOST:PID:TOKEN.")
    ] = None,
    nice: Annotated[
        int, typer.Option(min=0, max=19, help="Lower the priority, so that a server on the machine comes first.")
    ] = 0,
    once: Annotated[bool, typer.Option("--once", help="End when no training waits.")] = False,
    end_with_input: Annotated[
        bool,
        typer.Option("--end-with-input", help="End when the standard input does, a pipe of the process that owns it."),
    ] = False,
) -> None:
    """Train what tenants send to a server. SIGTERM gives the current training back."""
    os.nice(nice)
    # A directory is found from the folder of each training too.
    found = str(Path(backbone).resolve()) if Path(backbone).is_dir() else backbone
    find_checkpoint(found)
    machine = Machine(found, device, dtype, choose_threads(threads))
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")
    logging.getLogger("alembic").setLevel(logging.WARNING)
    called = name or create_holder_name()
    location = StoreLocation.of(store, registry)
    asyncio.run(_work(location, machine, called, once=once, end_with_input=end_with_input))


async def _work(location: StoreLocation, machine: Machine, name: str, *, once: bool, end_with_input: bool) -> None:
    blobs = await asyncio.to_thread(Blobs.open, location.blobs)
    registry = await Registry.open(location.registry)
    try:
        await require_own(registry, blobs)
        running = TrainingWorker(WorkerContext(registry, blobs, name), machine, once=once)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, running.stop)
        if end_with_input:
            loop.add_reader(0, _end_of_input, running)
        logging.getLogger(__name__).info("worker %s trains on %s", name, machine.backbone)
        await running.run()
    finally:
        await registry.close()


def _end_of_input(running: TrainingWorker) -> None:
    """Nothing is ever written to the pipe, so it is readable once its other end is closed, and stays so."""
    asyncio.get_running_loop().remove_reader(0)
    running.stop()
