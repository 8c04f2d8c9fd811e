"""Loads from the store and memory of adapters on the device, on MiniLM.

    .venv/bin/python benchmarks/residency.py [--loaded 10 1000 10000] [--presets lora]

A load brings an adapter that is not in memory to the device: it reads and verifies the bytes, parses and checks them,
copies the tensors and leases them. Loads are timed one at a time, for each of `--presets` in turn, with `--loaded`
other Compacters on the device. The table has wall-clock time and CPU time of the whole process, which does not depend
on other programs. Memory is the growth of the process, with the host tier off. All artifacts have different bytes.

In a cycle a thousand adapters of all presets are leased, sixteen at a time, on a device with room for a tenth of their
bytes and a host tier for a fifth, so each load evicts others. The rest is deleted at the end. On a CPU the tiers share
memory. "In use" excludes memory that the C library keeps free in its heap (see `peltier_backbone.machine.heap`).
"""

import argparse
import ctypes
import gc
import itertools
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from math import prod
from pathlib import Path
from typing import NamedTuple

import torch
from common.adapters import make_bytes
from common.callers import run as run_on_uvloop
from common.harness import Table, add_json, create_parser, median, percentile, write_json
from common.memory import ProcessMemory
from common.shelf import Seconds, Shelf
from peltier_adapters.artifact.manifest import read_header
from peltier_backbone.backbone import Backbone
from peltier_backbone.load import load_backbone
from peltier_backbone.machine.heap import keep_freed_memory
from peltier_server.residency.loader import StoreLoader
from peltier_server.residency.tiers import MemoryBudget
from peltier_store.blobs.blobs import Blobs

PRESETS = ("compacter", "lora", "adamix", "unipelt-apl")
SAMPLES = 200
_CYCLE_LOADS = 1000
_DEVICE_SHARE, _HOST_SHARE = 10, 5
LoadSamples = dict[int, dict[str, list[Seconds]]]


class EvictionCycle(NamedTuple):
    """Loads and evictions until the end of the cycle; the bytes of the tiers after all loads; and the bytes that the
    process had gained since before the first cycle: after all loads, after the tiers were emptied, and without the free
    bytes of the heap."""

    loads: int
    device_evictions: int
    host_evictions: int
    device_bytes: int
    host_bytes: int
    full_bytes: int
    empty_bytes: int
    used_bytes: int


class _Mallinfo(ctypes.Structure):
    """The ten sizes of `struct mallinfo2` in glibc; the ninth is the free bytes."""

    _fields_ = (("sizes", ctypes.c_size_t * 10),)


def tensor_bytes(data: bytes) -> int:
    """Bytes of the tensors alone."""
    return sum(4 * prod(entry["shape"]) for entry in read_header(data)[1].values())


def resident_set() -> int:
    """Bytes of memory of the process."""
    gc.collect()
    return int(2**20 * ProcessMemory().now_mib)


def free_heap() -> int:
    """Free bytes that the C library keeps."""
    mallinfo = ctypes.CDLL(None).mallinfo2
    mallinfo.restype = _Mallinfo
    return int(mallinfo().sizes[8])


async def time_loads(shelf: Shelf, counts: Sequence[int], presets: Sequence[str]) -> LoadSamples:
    """Times loads of each of `presets` with each of `counts` adapters on the device."""
    loaded, found = 0, LoadSamples()
    for count in counts:
        for _ in range(count - loaded):
            await shelf.load(shelf.store("compacter"))
        loaded = count
        samples: dict[str, list[Seconds]] = {preset: [] for preset in presets}
        for _ in range(SAMPLES):
            for preset in presets:
                owned = shelf.store(preset)
                samples[preset].append(await shelf.load(owned))
                shelf.slots.retire(owned)
        found[count] = samples
    return found


async def measure_memory(shelf: Shelf, preset: str, count: int) -> tuple[float, float]:
    """Bytes per adapter of the process, and as accounted."""
    owned = [shelf.store(preset) for _ in range(count)]
    before, used = resident_set(), shelf.slots.device.used_bytes
    for one in owned:
        await shelf.load(one)
    grown = (resident_set() - before) / count, (shelf.slots.device.used_bytes - used) / count
    for one in owned:
        shelf.slots.retire(one)
    return grown


def counted(shelf: Shelf) -> tuple[int, ...]:
    """The first five numbers of an `EvictionCycle`."""
    evictions, held = shelf.metrics.evictions.labels, shelf.metrics.adapter_bytes.labels
    shown = (shelf.metrics.loads, evictions("device"), evictions("host"), held("device"), held("host"))
    return tuple(int(next(iter(one.collect())).samples[0].value) for one in shown)


async def measure_cycles(shelf: Shelf, cycles: int) -> list[EvictionCycle]:
    """Runs every cycle with the same adapters."""
    owned = [shelf.store(preset) for preset in itertools.islice(itertools.cycle(PRESETS), _CYCLE_LOADS)]
    before, free, found = resident_set(), free_heap(), []
    for _ in range(cycles):
        await shelf.load_all(owned)
        counts, full = counted(shelf), resident_set() - before
        for one in owned:
            shelf.slots.retire(one)
        empty = resident_set() - before
        found.append(EvictionCycle(*counts, full, empty, empty - (free_heap() - free)))
    return found


def show_loads(found: LoadSamples) -> None:
    """A line for each preset: medians in milliseconds, with the 90th percentile of the clock's."""
    print(f"\nload from the store, ms: median (p90) of {SAMPLES}, and median CPU time")
    table = Table("loaded", *(f"{count:>20}" for count in found))
    for preset in next(iter(found.values())):
        cells = []
        for samples in found.values():
            clock, cpu = ([1000 * second for second in seconds] for seconds in zip(*samples[preset], strict=True))
            cells.append(f"{median(clock)} ({percentile(clock, 90):.2f}) {median(cpu)}")
        table.row(preset, *cells)


def show_memory(memory: dict[str, tuple[float, float]], tensors: dict[str, int]) -> None:
    """Prints bytes per adapter, and their ratio to those of its tensors."""
    table = Table("memory an adapter", "tensors KB", "accounted", "x", "process", "x")
    for preset, (process, accounted) in memory.items():
        own = tensors[preset]
        cells = (cell for one in (accounted, process) for cell in (f"{one / 1e3:.1f}", f"{one / own:.3f}"))
        table.row(preset, f"{own / 1e3:.1f}", *cells)


def show_cycles(cycles: list[EvictionCycle]) -> None:
    """Prints some of the cycles, with bytes in MB."""
    print(f"\n{len(cycles)} cycles of {_CYCLE_LOADS} loads; bytes in MB, the process's more than before")
    names = (field.replace("_", " ").removesuffix(" bytes") for field in EvictionCycle._fields)
    table = Table("cycle", *names, first=8)
    for number in sorted({0, 1, len(cycles) // 2, len(cycles) - 1} & set(range(len(cycles)))):
        counts, sizes = cycles[number][:3], cycles[number][3:]
        table.row(number + 1, *counts, *(f"{size / 1e6:.1f}" for size in sizes))


async def run(backbone: Backbone, options: argparse.Namespace, directory: Path) -> None:
    originals = {preset: make_bytes(backbone, preset, 0) for preset in {*PRESETS, *options.presets}}
    with ThreadPoolExecutor(4) as executor:
        shelf = partial(Shelf.create, StoreLoader(backbone, Blobs.open(directory), executor), directory, originals)
        warm = shelf()
        for preset in [*PRESETS, *options.presets] * 10:
            await warm.load(warm.store(preset))
        del warm
        tensors = {preset: tensor_bytes(originals[preset]) for preset in PRESETS}
        memory = {preset: await measure_memory(shelf(), preset, options.many) for preset in PRESETS}
        show_memory(memory, tensors)
        total = sum(tensors.values()) * _CYCLE_LOADS // len(PRESETS)
        cycles = await measure_cycles(shelf(MemoryBudget(total // _DEVICE_SHARE, total // _HOST_SHARE)), options.cycles)
        show_cycles(cycles)
        seconds = await time_loads(shelf(), options.loaded, options.presets)
    show_loads(seconds)
    found = {"load_seconds": seconds, "memory_bytes": memory, "cycles": [one._asdict() for one in cycles]}
    write_json(options, found)


def main() -> None:
    parser = create_parser(__doc__, loaded=(10, 1000, 10_000), presets=PRESETS, many=1000, cycles=20)
    add_json(parser, "what was measured")
    options = parser.parse_args()
    # Both as the server does.
    keep_freed_memory()
    sys.setswitchinterval(0.0002)
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as directory:
        run_on_uvloop(run(load_backbone("minilm"), options, Path(directory)))


if __name__ == "__main__":
    main()
