"""What share of the engine's rate the server reaches over HTTP, with 64 clients that send one text each.

    .venv/bin/python benchmarks/aggregate.py [--clients 64] [--rounds 4] [--seconds 5]

It uses MiniLM in float32 with one thread, 32 tasks of four presets, and sentences of SST-2's lengths. The server is a
separate process. This process by turns sends it requests, and calls `peltier_adapters.batch.forward` with batches of
random tasks that have as many rows as the server's batches had. It reports two ratios: CPU time of the server against
CPU time of the forward passes, which does not depend on other programs, and wall-clock time, which clients observe
while the event loop and the callers use a second core.
"""

import json
import random
import statistics
import time
from collections import Counter
from dataclasses import dataclass

import torch
from common.adapters import make_bytes
from common.callers import ask_for, predict_bytes, run
from common.harness import Table, add_json, create_parser, median, write_json
from common.passes import FOUR
from common.sentences import load_sentences
from common.serving import Server, serving_stock, variant
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.residency.bank import Banks, Resident
from peltier_backbone.backbone import Backbone
from peltier_backbone.load import load_backbone

NUM_TASKS, NUM_SENTENCES = 32, 2000


@dataclass(frozen=True)
class UsedTime:
    """The time that a number of requests, or rows, took."""

    count: int
    cpu_seconds: float
    seconds: float

    @property
    def per_core(self) -> float:
        """Requests, or rows, per CPU second."""
        return self.count / self.cpu_seconds

    @property
    def by_clock(self) -> float:
        """Requests, or rows, per second of wall-clock time."""
        return self.count / self.seconds


class ForwardPasses:
    """Runs the forward passes alone, on batches of the sizes that a server has formed."""

    def __init__(self, backbone: Backbone, residents: list[Resident], sentences: list[str]) -> None:
        self._backbone = backbone
        self._residents = residents
        self._encoded = [backbone.tokenizer.encode(text, max_tokens=128) for text in sentences]
        self._draw = random.Random(0)

    def compute(self, sizes: Counter[int], seconds: float) -> UsedTime:
        """Computes batches until `seconds` are over."""
        count, used, begun = 0, time.process_time(), time.perf_counter()
        while time.perf_counter() - begun < seconds:
            (size,) = self._draw.choices(list(sizes), list(sizes.values()))
            texts, residents = self._draw.sample(self._encoded, size), self._draw.choices(self._residents, k=size)
            forward(self._backbone, [Row(*one) for one in zip(texts, residents, strict=True)])
            count += size
        return UsedTime(count, time.process_time() - used, time.perf_counter() - begun)


def ask(server: Server, requests: list[bytes], clients: int, seconds: float) -> tuple[UsedTime, Counter[int]]:
    """The time that the server's process took, and how many batches of each size it formed."""
    used = server.cpu_seconds
    answers = run(ask_for(server.url, requests, clients, seconds))
    rows = Counter(json.loads(body)["batch"]["rows"] for _, body in answers)
    # Each of the n rows of a batch reports n. The last batches are small, because some callers have ended.
    sizes = Counter({size: max(1, round(count / size)) for size, count in rows.items()})
    taken = UsedTime(len(answers), server.cpu_seconds - used, answers[-1][0])
    return taken, sizes


def report(rounds: list[tuple[UsedTime, UsedTime]], sizes: Counter[int], clients: int) -> dict[str, float]:
    """Prints rates and their ratios: medians of the rounds."""
    mean_rows = sum(size * count for size, count in sizes.items()) / sizes.total()
    print(f"{clients} clients, one text each, {NUM_TASKS} tasks of {len(FOUR)} presets; {mean_rows:.1f} rows a batch")
    table = Table("", "a second of CPU time", "a second by the clock")
    for place, name in enumerate(("server, requests", "engine, rows")):
        used = [pair[place] for pair in rounds]
        table.row(name, median([one.per_core for one in used], ".1f"), median([one.by_clock for one in used], ".1f"))
    found = {
        clock: statistics.median(getattr(one, clock) / getattr(other, clock) for one, other in rounds)
        for clock in ("per_core", "by_clock")
    }
    table.row("server / engine", *(f"{ratio:.2f}" for ratio in found.values()))
    return {"rows_a_batch": mean_rows, **found}


def main() -> None:
    parser = create_parser(__doc__, clients=64, rounds=4, seconds=5.0)
    add_json(parser, "the ratios")
    given = parser.parse_args()
    torch.set_num_threads(1)
    backbone = load_backbone("minilm")
    banks = Banks(backbone)
    originals = {preset: make_bytes(backbone, preset, 0) for preset in FOUR}
    sentences, draw = load_sentences(None, NUM_SENTENCES), random.Random(0)
    files = [variant(originals[FOUR[number % len(FOUR)]], number) for number in range(NUM_TASKS)]
    engine = ForwardPasses(backbone, [banks.add(read_artifact(data, backbone)) for data in files], sentences)
    with serving_stock(originals, NUM_TASKS) as (server, tasks):
        requests = [predict_bytes(draw.choice(tasks), text) for text in sentences]
        rounds = []
        for _ in range(given.rounds + 1):
            taken, sizes = ask(server, requests, given.clients, given.seconds)
            rounds.append((taken, engine.compute(sizes, given.seconds)))
    found = report(rounds[1:], sizes, given.clients)  # the first one warms up
    write_json(given, found)


if __name__ == "__main__":
    main()
