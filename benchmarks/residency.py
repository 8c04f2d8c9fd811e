"""Loads from the store and memory of adapters on the device, on MiniLM.

    .venv/bin/python benchmarks/residency.py [--loaded 10 1000 10000] [--cycles 20] [--plot FILE.png]

A load is what the server does for an adapter that is nowhere in memory: read and verify the bytes, parse and check
them, bring the tensors to the device and lease them. It is timed one at a time, for each preset in turn, with so many
other Compacters on the device; beside the clock's time stands the CPU time of the whole process, because that is the
same whatever else the machine does. Memory is what the process grows by; the host tier is off. In a cycle a thousand
adapters of all presets are loaded and then deleted. Every artifact has bytes of its own.
"""

import argparse
import asyncio
import gc
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import NamedTuple

import torch
from adapters import make_bytes
from peltier_adapters.artifact import Artifact, digest_of
from peltier_adapters.bank import Resident
from peltier_adapters.manifest import read_header
from peltier_adapters.store.blobs import Blobs
from peltier_backbone.heap import keep_freed_memory
from peltier_backbone.load import Backbone, load_backbone
from peltier_server.metrics import Metrics
from peltier_server.owned import Owned
from peltier_server.residency.loader import StoreLoader
from peltier_server.residency.slots import Slots
from stock import variant

PRESETS = ("compacter", "lora", "adamix", "unipelt-apl")
SAMPLES = 200
_ALL = 64 * 1024**3


class Seconds(NamedTuple):
    """By the clock, and of the CPU."""

    clock: float
    cpu: float


Samples = dict[int, dict[str, list[Seconds]]]


@dataclass(frozen=True)
class Shelf:
    """Adapters in a store, and a device that takes them all."""

    directory: Path
    originals: dict[str, bytes]
    slots: Slots[Owned, Artifact, Resident]
    numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    def store(self, preset: str) -> Owned:
        """A new artifact, with bytes of its own."""
        data = variant(self.originals[preset], next(self.numbers))
        digest = digest_of(data)
        # What `Blobs.put` would write, without waiting for the disk ten thousand times.
        (self.directory / digest.replace(":", "/")).write_bytes(data)
        return Owned("default", digest)

    async def load(self, owned: Owned) -> Seconds:
        """How long until it can be used."""
        start, used = time.perf_counter(), time.process_time()
        async with self.slots.lease(owned):
            return Seconds(time.perf_counter() - start, time.process_time() - used)


def tensor_bytes(data: bytes) -> int:
    """Of the tensors alone."""
    return sum(4 * prod(entry["shape"]) for entry in read_header(data)[1].values())


def resident_set() -> int:
    """Bytes of memory that the process has."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


async def time_loads(shelf: Shelf, counts: Sequence[int]) -> Samples:
    """Loads of each preset with so many adapters on the device."""
    loaded, found = 0, Samples()
    for count in counts:
        for _ in range(count - loaded):
            await shelf.load(shelf.store("compacter"))
        loaded = count
        samples: dict[str, list[Seconds]] = {preset: [] for preset in PRESETS}
        for _ in range(SAMPLES):
            for preset in PRESETS:
                owned = shelf.store(preset)
                samples[preset].append(await shelf.load(owned))
                shelf.slots.retire(owned)
        found[count] = samples
    return found


async def measure_memory(shelf: Shelf, preset: str, count: int) -> tuple[float, float]:
    """(process, accounted) bytes an adapter."""
    owned = [shelf.store(preset) for _ in range(count)]
    before, used = resident_set(), shelf.slots.used_bytes
    for one in owned:
        await shelf.load(one)
    grown = (resident_set() - before) / count, (shelf.slots.used_bytes - used) / count
    for one in owned:
        shelf.slots.retire(one)
    return grown


async def measure_cycles(shelf: Shelf, cycles: int, count: int) -> list[tuple[int, int]]:
    """(full, empty) bytes that the process has more than before the first cycle, of each cycle."""
    owned = [shelf.store(preset) for preset in itertools.islice(itertools.cycle(PRESETS), count)]
    before, found = resident_set(), []
    for _ in range(cycles):
        for one in owned:
            await shelf.load(one)
        full = resident_set() - before
        for one in owned:
            shelf.slots.retire(one)
        found.append((full, resident_set() - before))
    return found


def show_loads(found: Samples) -> None:
    """Medians of each preset in milliseconds, with the 90th percentile of the clock's."""
    print(f"\nload from the store, ms: median (p90) of {SAMPLES}, and median CPU time")
    print(f"{'loaded':>8}" + "".join(f"{preset:>24}" for preset in PRESETS))
    for count, samples in found.items():
        cells = []
        for preset in PRESETS:
            clock, cpu = ([1000 * second for second in seconds] for seconds in zip(*samples[preset], strict=True))
            p90 = statistics.quantiles(clock, n=10)[8]
            cells.append(f"{statistics.median(clock):10.2f} ({p90:5.2f}){statistics.median(cpu):6.2f}")
        print(f"{count:8}" + "".join(cells))


def show_memory(memory: dict[str, tuple[float, float]], tensors: dict[str, int]) -> None:
    """Bytes an adapter, and how they compare with those of its tensors."""
    print(f"\n{'memory an adapter':18}{'tensors KB':>12}{'accounted':>12}{'x':>7}{'process':>12}{'x':>7}")
    for preset, (process, accounted) in memory.items():
        own = tensors[preset]
        cells = "".join(f"{one / 1e3:12.1f}{one / own:7.3f}" for one in (accounted, process))
        print(f"{preset:18}{own / 1e3:12.1f}{cells}")


def show_cycles(cycles: list[tuple[int, int]]) -> None:
    """The first and the last of them."""
    for number in sorted({0, 1, len(cycles) // 2, len(cycles) - 1} & set(range(len(cycles)))):
        full, empty = cycles[number]
        print(f"cycle {number + 1:3}: {full / 1e6:8.1f} MB with all loaded, {empty / 1e6:8.1f} MB after their deletion")


def plot(found: Samples, path: Path) -> None:
    """Median load time against the adapters on the device."""
    import matplotlib.pyplot as plt

    for preset in PRESETS:
        medians = [1000 * statistics.median(one.cpu for one in samples[preset]) for samples in found.values()]
        plt.plot(list(found), medians, marker="o", label=preset)
    plt.xscale("log")
    plt.ylim(bottom=0)
    plt.xlabel("adapters loaded")
    plt.ylabel("load from the store, ms of CPU")
    plt.legend()
    plt.savefig(path, dpi=150)


async def run(backbone: Backbone, options: argparse.Namespace, directory: Path) -> None:
    originals = {preset: make_bytes(backbone, preset, 0) for preset in PRESETS}
    blobs = Blobs.open(directory)
    with ThreadPoolExecutor(4) as executor:

        def shelf() -> Shelf:
            loader = StoreLoader(backbone, blobs, executor)
            return Shelf(directory, originals, Slots(loader, device_bytes=_ALL, host_bytes=0, metrics=Metrics()))

        warm = shelf()
        for preset in PRESETS * 20:
            await warm.load(warm.store(preset))
        del warm
        memory = {preset: await measure_memory(shelf(), preset, options.many) for preset in PRESETS}
        show_memory(memory, {preset: tensor_bytes(data) for preset, data in originals.items()})
        cycles = await measure_cycles(shelf(), options.cycles, 1000)
        print(f"\n{options.cycles} cycles of 1000 loads")
        show_cycles(cycles)
        seconds = await time_loads(shelf(), options.loaded)
    show_loads(seconds)
    if options.plot:
        plot(seconds, options.plot)
    if options.json:
        found = {"load_seconds": seconds, "memory_bytes": memory, "cycles_bytes": cycles}
        options.json.write_text(json.dumps(found))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loaded", type=int, nargs="+", default=[10, 1000, 10_000])
    parser.add_argument("--many", type=int, default=1000, help="adapters of each preset whose memory is measured")
    parser.add_argument("--cycles", type=int, default=20)
    parser.add_argument("--plot", type=Path, help="draw load times into this file (needs matplotlib)")
    parser.add_argument("--json", type=Path, help="also write what was measured here")
    options = parser.parse_args()
    keep_freed_memory()  # as the server does
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as directory:
        asyncio.run(run(load_backbone("minilm"), options, Path(directory)))


if __name__ == "__main__":
    main()
