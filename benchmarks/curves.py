"""How the rate of batches falls with the number of adapters in them, and with the number of adapters on a server.

    .venv/bin/python benchmarks/curves.py [--dtypes float32 int8] [--level avx2] [--rounds 5] [--json FILE]

First batches of 64 sentences of SST-2's lengths, with 1, 4, 16 and 64 different adapters of one preset, or of four
presets by turns. Ratios compare with the bare backbone, which takes turns with them: the same tokens, in process CPU
time on one thread.

Then servers with 1,024 adapters of the four presets, of which each request takes one at random, all equally often. 64
callers send the next sentence as soon as they have an answer. One server has all adapters on its device. The others
have room for 32: one with all in its host tier, one without a host tier, which loads them from the store. Ratios
compare with the first in the same round, in answers per second by the clock and per second of the server's CPU time.
"""

import argparse
import random
import statistics
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from itertools import product
from pathlib import Path

import torch
from common.adapters import make_bytes
from common.callers import ask_all, ask_for, predict_bytes, run
from common.forced import add_level, hold_process
from common.options import add_json, create_parser, write_json
from common.passes import FOUR, Adapters, bare_pass, mixed_pass
from common.sentences import load_sentences
from common.serving import Server, serving
from common.stock import stock
from common.turns import Call, Rounds, ratios, time_by_turns
from peltier_adapters.batch.row import Row
from peltier_backbone.backbone import Backbone
from peltier_backbone.load import DTYPES, load_backbone
from peltier_backbone.machine.heap import keep_freed_memory
from peltier_backbone.text.packing import Encoded
from traffic import CALLERS, NUM_REQUESTS, LoadedServer

ROWS, COUNTS = 64, (1, 4, 16, 64)
STORED, ROOM = 1024, 32
MIXES = (FOUR, *((preset,) for preset in FOUR))
RESIDENT, BARE = "all on the device", "bare"
# The servers with room for 32, and the bytes of their host tier.
LIMITED = {"32 on the device, all on the host": 2**32, "32 on the device, the rest in the store": 0}


def name_of(presets: tuple[str, ...], count: int) -> str:
    """A batch's name in the file of results."""
    return f"{' '.join(presets)}: {count}"


def with_adapters(
    adapters: Adapters, batch: list[Encoded], presets: tuple[str, ...], count: int
) -> list[Row]:  # fmt: skip
    """The batch with `count` adapters of `presets`. Each has the same number of rows, in random order."""
    taken = [adapters.take(preset, count // len(presets)) for preset in presets]
    residents = [resident for group in taken for resident in group]
    order = random.Random(0).sample(range(len(batch)), len(batch))
    return [Row(row, residents[place % count]) for row, place in zip(batch, order, strict=True)]


def measure_batches(backbone: Backbone, exact: Backbone, rounds: int) -> Rounds:
    """How many times as fast as the bare backbone, round by round."""
    batch = [backbone.tokenizer.encode(text, max_tokens=128) for text in load_sentences(None, ROWS)]
    adapters = Adapters(backbone, exact)
    calls: dict[str, Call] = {}
    for presets, count in product(MIXES, COUNTS):
        if count >= len(presets):
            rows = with_adapters(adapters, batch, presets, count)
            calls[name_of(presets, count)] = partial(mixed_pass, backbone, [rows])
    seconds = time_by_turns({BARE: partial(bare_pass, backbone, [batch]), **calls}, rounds)
    return {name: ratios(seconds[BARE], seconds[name]) for name in calls}


def start_servers(stack: ExitStack, store: Path, tasks: Sequence[str], dtype: str) -> dict[str, Server]:
    """All over the same store. Each has answered for every adapter."""

    def start(name: str, device_bytes: int, host_bytes: int) -> Server:
        flags = "--dtype", dtype, "--device-bytes", str(device_bytes), "--host-bytes", str(host_bytes)
        server = stack.enter_context(serving("--log-level", "warning", *flags, store=store))
        run(ask_all(server.url, [predict_bytes(task, "ok") for task in tasks], CALLERS))
        print(f"{dtype}, {name}: {STORED} adapters have answered", file=sys.stderr, flush=True)
        return server

    servers = {RESIDENT: start(RESIDENT, 2**32, 0)}
    room = int(ROOM * servers[RESIDENT].counter("peltier_adapter_bytes") / STORED)
    return servers | {name: start(name, room, host_bytes) for name, host_bytes in LIMITED.items()}


def measure_servers(store: Path, tasks: list[str], dtype: str, given: argparse.Namespace) -> dict[str, LoadedServer]:
    """All by turns, after a warm-up."""
    sentences = load_sentences(None, NUM_REQUESTS)
    with ExitStack() as stack:
        servers = start_servers(stack, store, tasks, dtype)
        crowds = {name: LoadedServer(server, tasks, STORED) for name, server in servers.items()}
        for crowd in crowds.values():
            run(ask_for(crowd.server.url, crowd.requests(sentences, 0, given.rounds), CALLERS, given.seconds / 2))
        for turn in range(given.rounds):
            for crowd in crowds.values():
                crowd.saturate(crowd.requests(sentences, 0, turn), given.seconds)
    return crowds


def report_batches(dtype: str, found: Rounds) -> None:
    """A line for each preset."""
    print(f"\n{dtype}: rate of {ROWS} rows with so many adapters, x bare, median of rounds")
    print(f"{'':16}" + "".join(f"{count:>8}" for count in COUNTS))
    for presets in MIXES:
        cells = (found.get(name_of(presets, count)) for count in COUNTS)
        middles = (f"{statistics.median(cell):8.3f}" if cell else f"{'':8}" for cell in cells)
        print(f"{'four presets' if len(presets) > 1 else presets[0]:16}" + "".join(middles))


def report_servers(dtype: str, crowds: Mapping[str, LoadedServer]) -> None:
    """A line for each server."""
    print(f"\n{dtype}: {STORED:,} adapters, {CALLERS} callers, uniform requests; medians of rounds, and their range")
    print(f"{'':38}{'answers/s':>11}{'x by the clock':>24}{'x by CPU time':>24}{'loads/answer':>14}")
    for name, crowd in crowds.items():
        cells = "".join(
            f"{statistics.median(own):10.3f} ({min(own):.3f}-{max(own):.3f})"
            for own in crowd.beside(crowds[RESIDENT]).values()
        )
        loads = crowd.num_loads / crowd.num_answers
        print(f"{name:38}{statistics.median(crowd.rates):11.1f}{cells}{loads:14.3f}")


def main() -> None:
    parser = create_parser(__doc__, rounds=5, seconds=2.0)
    parser.add_argument("--dtypes", nargs="+", choices=list(DTYPES), default=["float32", "int8"])
    add_level(parser)
    add_json(parser, "the ratios of each round")
    given = parser.parse_args()
    hold_process(given.level)
    keep_freed_memory()
    torch.set_num_threads(1)
    exact, found = load_backbone("minilm"), {}
    originals = {preset: make_bytes(exact, preset, 0) for preset in FOUR}
    for dtype in given.dtypes:
        batches = measure_batches(load_backbone("minilm", dtype=dtype), exact, given.rounds)
        report_batches(dtype, batches)
        found[dtype] = {"batches": batches}
    with tempfile.TemporaryDirectory() as directory:
        store = Path(directory) / "store"
        tasks = stock(store, originals, STORED)
        for dtype in given.dtypes:
            crowds = measure_servers(store, tasks, dtype, given)
            report_servers(dtype, crowds)
            found[dtype]["servers"] = {name: crowd.beside(crowds[RESIDENT]) for name, crowd in crowds.items()}
    write_json(given, found)


if __name__ == "__main__":
    main()
