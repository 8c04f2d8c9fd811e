"""How much CPU time a request takes outside of the model: the server runs with a model that answers at once.

    .venv/bin/python benchmarks/overhead.py [--callers 16 64] [--requests 4000] [--profile]

The server is the real one except the forward pass (`benchmarks/instant.py`), in a separate process. Callers keep their
connections; each request has one sentence of SST-2's length for one of 32 tasks. CPU time is that of the server's whole
process in user and kernel mode: the event loop, the tokenizer, the queue, the runner's thread and the answer. The
server takes turns with plain FastAPI that has the same body and answer (`benchmarks/bare.py`), which gives the minimal
cost of HTTP on this machine at that time. The last lines have the CPU time of a row if a request has 64 sentences.
`--profile` samples the event loop.
"""

import json
import os
import random
import signal
import statistics
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from common.adapters import make_bytes
from common.callers import ask_all, predict_bytes, request_bytes, run
from common.harness import Table, by_turns, create_parser, median, median_ratio
from common.sentences import load_sentences
from common.serving import Server, serving_stock, started
from peltier_backbone.load import load_backbone

INSTANT = (sys.executable, str(Path(__file__).with_name("instant.py")))
BARE = (sys.executable, str(Path(__file__).with_name("bare.py")))
FASTAPI = "fastapi alone"
NUM_TASKS = 32
CostSamples = dict[tuple[int, str], list[tuple[float, float]]]
_PROFILED_ROUNDS, _SHOWN = 3, 60
_ROWS_PER_REQUEST, _ROW_REQUESTS = 64, 50
_ROW_CALLERS = (1, 4)


def main() -> None:
    parser = create_parser(__doc__, callers=(1, 16, 64), requests=3000, rounds=3)
    parser.add_argument("--profile", action="store_true", help="also say where the time goes")
    given = parser.parse_args()
    originals = {"compacter": make_bytes(load_backbone("minilm"), "compacter", 0)}
    draw, sentences = random.Random(0), load_sentences(None, given.requests)
    with (
        tempfile.TemporaryDirectory() as directory,
        serving_stock(originals, NUM_TASKS, command=INSTANT, environment={"SAMPLES": f"{directory}/samples.json"}) as (
            server,
            tasks,
        ),
        started(BARE) as bare,
    ):
        requests = [predict_bytes(draw.choice(tasks), text) for text in sentences]
        report(measure({"peltier": server, FASTAPI: bare}, requests, given.callers, given.rounds), given.requests)
        report_rows(server, row_requests(draw, tasks, sentences), given.rounds)
        if given.profile:
            show_profile(server, requests, max(given.callers), Path(directory) / "samples.json")


def measure(servers: dict[str, Server], requests: list[bytes], callers: list[int], rounds: int) -> CostSamples:
    """CPU seconds of the server's process and seconds of the clock, of each round; everything takes turns."""

    def send(server: Server, count: int) -> tuple[float, float]:
        used, begun = server.cpu_seconds, time.perf_counter()
        run(ask_all(server.url, requests, count))
        return server.cpu_seconds - used, time.perf_counter() - begun

    for server in servers.values():
        send(server, 16)  # the adapters come to the device, and code paths get warm
    measures = {(count, name): partial(send, server, count) for count in callers for name, server in servers.items()}
    return by_turns(measures, rounds, warm_up=False)


def report(found: CostSamples, num_requests: int) -> None:
    """A line for each server and number of callers: medians of the rounds, with the range."""
    print(f"{num_requests} requests a round, {NUM_TASKS} tasks, one sentence each")
    table = Table("callers at a time", "CPU, µs a request", "range", "x fastapi", "requests/s")
    for (count, name), samples in found.items():
        micros = [1e6 * cpu / num_requests for cpu, _ in samples]
        ratio = median_ratio(*([cpu for cpu, _ in one] for one in (samples, found[count, FASTAPI])))
        rates = [num_requests / seconds for _, seconds in samples]
        spread = f"{min(micros):.0f} to {max(micros):.0f}"
        table.row(f"{count}, {name}", median(micros, ".0f"), spread, f"{ratio:.2f}", median(rates, ".0f"))


def row_requests(draw: random.Random, tasks: list[str], sentences: list[str]) -> list[bytes]:
    """Requests with many sentences each, for one task each."""
    return [
        request_bytes(f"/v1/tasks/{draw.choice(tasks)}/predict", {"inputs": draw.sample(sentences, _ROWS_PER_REQUEST)})
        for _ in range(_ROW_REQUESTS)
    ]


def report_rows(server: Server, requests: list[bytes], rounds: int) -> None:
    """CPU microseconds of a row of these requests, for each number of callers: the median of the rounds."""
    num_rows = len(requests) * _ROWS_PER_REQUEST
    run(ask_all(server.url, requests, max(_ROW_CALLERS)))
    for count in _ROW_CALLERS:
        micros = []
        for _ in range(rounds):
            used = server.cpu_seconds
            run(ask_all(server.url, requests, count))
            micros.append(1e6 * (server.cpu_seconds - used) / num_rows)
        print(
            f"{count:<20}{_ROWS_PER_REQUEST} sentences a request: {statistics.median(micros):.1f} µs of CPU a row, "
            f"{min(micros):.1f} to {max(micros):.1f}"
        )


def show_profile(server: Server, requests: list[bytes], callers: int, samples: Path) -> None:
    """Functions by CPU time in microseconds a request, alone and with what they call."""
    os.kill(server.process.pid, signal.SIGUSR1)
    used = server.cpu_seconds
    run(ask_all(server.url, requests * _PROFILED_ROUNDS, callers))
    micros = 1e6 * (server.cpu_seconds - used) / (len(requests) * _PROFILED_ROUNDS)
    os.kill(server.process.pid, signal.SIGUSR2)
    while not samples.exists():
        time.sleep(0.1)
    for kind, shares in json.loads(samples.read_text()).items():
        print(f"\nµs a request of {micros:.0f}, {kind}")
        for name, share in list(shares.items())[:_SHOWN]:
            print(f"{micros * share:8.1f}  {name}")


if __name__ == "__main__":
    main()
