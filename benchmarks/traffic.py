"""Throughput and latency of a server with 1 to 10,000 adapters, whose popularity follows a power law.

    .venv/bin/python benchmarks/traffic.py [--adapters 1 10 100 1000] [--alpha 1.0] [--load 0.5] [--json FILE]
    .venv/bin/python benchmarks/traffic.py --adapters 1 10000        (most of its time goes into loading them)
    .venv/bin/python benchmarks/traffic.py --adapters 1024 --room 32 --alpha 0 [--dtype int8] [--level avx2]

There is one server for each number of adapters, with MiniLM, one thread and a real store of that many different
artifacts. All servers are ready before the measurement, and take turns. A request is one sentence of SST-2's length for
one task. The task of rank r gets r^-alpha times as many requests as the first. Every adapter gets one request
beforehand; `benchmarks/residency.py` measures loads. The artifacts are of four presets in turn, made small (10,000 of
them are 1.0 GB), so that they fit into the server's default budget. The server with "1" has one adapter of each preset,
and each round uses one of them. With `--device-mib` the servers have less memory for adapters and no host tier: less
popular adapters are evicted and loaded again, and the last column says how often. With `--room N` there are two more
servers with as many adapters as the last one, and room for N of them on the device: one has all in its host tier, the
other has no host tier. All adapters then have the sizes of their presets' defaults.

Saturation: 64 callers send the next request as soon as they have an answer; the table has requests per second of
wall-clock time and of the server's CPU time. Load: requests arrive by a Poisson process at a fraction of the rate that
the server with one adapter has just reached, the same for all servers and independent of earlier answers (no
coordinated omission). A latency is the time from the arrival to the whole answer.
"""

import argparse
import itertools
import random
import statistics
import sys
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from common.adapters import make_bytes
from common.callers import ask_all, ask_at, ask_for, poisson, predict_bytes, run
from common.forced import add_level, hold_process
from common.harness import Table, add_json, create_parser, median, percentile, ratios, write_json
from common.sentences import load_sentences
from common.serving import Server, serving, stock
from peltier_backbone.load import DTYPES, load_backbone

SMALL: dict[str, dict[str, int]] = {
    "compacter": {},
    "lora": {"rank": 2},
    "adamix": {"bottleneck": 2},
    "unipelt-apl": {"bottleneck": 2, "length": 1, "rank": 1},
}
CALLERS, LINES, NUM_REQUESTS = 64, 512, 4000
LOADS = "peltier_adapter_loads_total"
PERCENTS = (50, 90, 99)


@dataclass
class LoadedServer:
    """A server, its tasks in the order of their popularity, and its measurements."""

    name: str
    server: Server
    tasks: list[str]
    num_adapters: int
    rates: list[float] = field(default_factory=list)
    per_core: list[float] = field(default_factory=list)
    latencies: list[list[float]] = field(default_factory=list)
    num_answers: int = 0
    num_loads: float = 0

    def requests(self, sentences: Sequence[str], alpha: float, turn: int) -> list[bytes]:
        """One request for each sentence. A server with one adapter at a time gets only the task of this round."""
        draw, tasks = random.Random(turn), self.tasks
        if self.num_adapters == 1:
            tasks = [tasks[turn % len(tasks)]]
        weights = list(itertools.accumulate(rank**-alpha for rank in range(1, len(tasks) + 1)))
        chosen = draw.choices(tasks, cum_weights=weights, k=len(sentences))
        return [predict_bytes(task, text) for task, text in zip(chosen, sentences, strict=True)]

    def saturate(self, requests: Sequence[bytes], seconds: float) -> None:
        """Measures the rate of answers when the server always has work."""
        loaded, used = self.server.counter(LOADS), self.server.cpu_seconds
        answers = run(ask_for(self.server.url, requests, CALLERS, seconds))
        self.per_core.append(len(answers) / (self.server.cpu_seconds - used))
        self.rates.append(sum(moment < seconds for moment, _ in answers) / seconds)
        self.num_answers += len(answers)
        self.num_loads += self.server.counter(LOADS) - loaded

    def bear(self, requests: Sequence[bytes], rate: float, seconds: float, turn: int) -> None:
        """Measures the latencies of requests that arrive at `rate`."""
        moments = poisson(rate, seconds, random.Random(turn).expovariate)
        self.latencies.append(run(ask_at(self.server.url, list(zip(moments, itertools.cycle(requests))), LINES)))

    def latency(self, percent: int) -> float:
        """A percentile of the latency in milliseconds: the median of the rounds, so that a round beside a busy program
        does not count."""
        return 1e3 * statistics.median(percentile(one, percent) for one in self.latencies)

    def beside(self, first: "LoadedServer") -> dict[str, list[float]]:
        """The ratio of each rate to the rate of another server in the same round."""
        pairs = {"by the clock": (self.rates, first.rates), "by CPU time": (self.per_core, first.per_core)}
        return {name: ratios(*pair) for name, pair in pairs.items()}


def gather(stack: ExitStack, directory: Path, given: argparse.Namespace) -> list[LoadedServer]:
    """Fills stores one after the other, starts servers in parallel, and sends one request to every adapter."""
    backbone = load_backbone("minilm")
    presets = {preset: {} if given.room else settings for preset, settings in SMALL.items()}
    originals = {preset: make_bytes(backbone, preset, 0, **settings) for preset, settings in presets.items()}
    del backbone
    flags = ("--log-level", "warning", "--dtype", given.dtype)

    def start(name: str, tasks: list[str], count: int, store: Path, *memory: str) -> LoadedServer:
        server = stack.enter_context(serving(*flags, *memory, store=store))
        run(ask_all(server.url, [predict_bytes(task, "ok") for task in tasks], CALLERS))
        print(f"{name} adapters are loaded", file=sys.stderr, flush=True)
        return LoadedServer(name, server, tasks, count)

    stores = [directory / f"store-{count}" for count in given.adapters]
    stocked = [
        stock(store, originals, max(count, len(SMALL) if count == 1 else 0))
        for store, count in zip(stores, given.adapters, strict=True)
    ]
    memory = () if given.device_mib is None else bounded(given.device_mib * 2**20, 0)
    names = [f"{count:,}" for count in given.adapters]
    with ThreadPoolExecutor(2) as starting:
        crowds = list(starting.map(lambda *one: start(*one, *memory), names, stocked, given.adapters, stores))
    if given.room:
        last = crowds[-1]
        room = int(given.room * last.server.counter("peltier_adapter_bytes") / last.num_adapters)
        for name, host_bytes in (("the rest on the host", 2**32), ("no host tier", 0)):
            memory = bounded(room, host_bytes)
            crowds.append(start(f"{given.room}, {name}", last.tasks, last.num_adapters, stores[-1], *memory))
    return crowds


def bounded(device_bytes: int, host_bytes: int) -> tuple[str, ...]:
    """The flags of a server with so much memory for adapters."""
    return "--device-bytes", str(device_bytes), "--host-bytes", str(host_bytes)


def measure(crowds: Sequence[LoadedServer], given: argparse.Namespace) -> float:
    """Runs rounds of saturation and load, with the servers in turn; returns the median arrival rate."""
    sentences = load_sentences(None, NUM_REQUESTS)
    for crowd in crowds:  # code paths and the products of each size get warm
        run(ask_for(crowd.server.url, crowd.requests(sentences, given.alpha, 0), CALLERS, given.seconds / 2))
    rates: list[float] = []
    for turn in range(given.rounds):
        asked = [crowd.requests(sentences, given.alpha, turn) for crowd in crowds]
        for crowd, requests in zip(crowds, asked, strict=True):
            crowd.saturate(requests, given.seconds)
        rates.append(given.load * crowds[0].rates[-1])
        for crowd, requests in zip(crowds, asked, strict=True):
            crowd.bear(requests, rates[-1], given.seconds * 2, turn)
    return statistics.median(rates)


def report(crowds: Sequence[LoadedServer], rate: float, given: argparse.Namespace) -> None:
    """Prints one line per server: medians of the rounds, and of ratios within a round."""
    first = crowds[0]
    print(f"power law with exponent {given.alpha:g}, {given.rounds} rounds; {CALLERS} callers at saturation,")
    arrivals = sum(map(len, first.latencies))
    print(f"then {given.load:g} of one adapter's rate, {rate:.0f} arrivals a second ({arrivals} in all for each line)")
    columns = ("requests/s", "x first", "a CPU second", "x first", *(f"p{one} ms" for one in PERCENTS), "p99 x first")
    table = Table("adapters", *columns, "loads/answer", first=24)
    for crowd in crowds:
        cells = []
        for own, beside in zip((crowd.rates, crowd.per_core), crowd.beside(first).values(), strict=True):
            cells += [median(own, ".1f"), median(beside, ".3f")]
        cells += [f"{crowd.latency(one):.1f}" for one in PERCENTS]
        cells += [f"{crowd.latency(99) / first.latency(99):.2f}", f"{crowd.num_loads / crowd.num_answers:.3f}"]
        table.row(crowd.name, *cells)


def main() -> None:
    parser = create_parser(__doc__, adapters=(1, 10, 100, 1000), alpha=1.0, load=0.5, rounds=5, seconds=2.0)
    parser.add_argument("--device-mib", type=int, help="of each server's memory for adapters")
    parser.add_argument("--room", type=int, default=0, help="adapters that fit on the device of two more servers")
    parser.add_argument("--dtype", choices=list(DTYPES), default="float32")
    add_level(parser)
    add_json(parser, "everything that was measured")
    given = parser.parse_args()
    hold_process(given.level)
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        crowds = gather(stack, Path(directory), given)
        rate = measure(crowds, given)
    report(crowds, rate, given)
    found = [
        {"adapters": crowd.num_adapters, "ratios": crowd.beside(crowds[0]), "latency_seconds": crowd.latencies}
        for crowd in crowds
    ]
    write_json(given, {"arrivals_per_second": rate, "crowds": found})


if __name__ == "__main__":
    main()
