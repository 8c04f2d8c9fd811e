"""What a scrape of `/routing-metrics` costs a server whose 10,000 adapters are all on the device.

    .venv/bin/python benchmarks/routing.py [--adapters 10000] [--names 100] [--scrapes 1000]

A picker with one connection reads the page again and again, as fast as the server answers: first while no adapter is
loaded, then when each has answered once. The CPU time is that of the server's process for each scrape, from the parser
of HTTP to the answer, and all else that the process does meanwhile. The best of five rounds is the least disturbed by
other programs on the machine. The time by the clock is the picker's.
"""

import re
import statistics
from functools import partial

import httpx2
from common.adapters import make_bytes
from common.callers import ask_all, predict_bytes, run
from common.harness import create_parser, print_milliseconds, seconds_of
from common.serving import Server, free_port, serving_stock
from peltier_backbone.load import load_backbone
from peltier_server.http.routing_server import PATH

PRESET = "bitfit"
# Twenty times a second.
PERIOD_SECONDS = 0.05
GIB = 1024**3
ROUNDS = 5


def measure(what: str, server: Server, picker: httpx2.Client, scrapes: int) -> None:
    """Prints the costs of that many scrapes, and what the page lists."""
    page = picker.get(PATH).raise_for_status().text
    listed = len(re.findall(r"[^,]+", re.search(r'running_lora_adapters="([^"]*)"', page)[1]))  # type: ignore[index]
    cpu, seconds = list[float](), list[float]()
    for _ in range(ROUNDS):
        before = server.cpu_seconds
        seconds += [seconds_of(partial(picker.get, PATH)) for _ in range(scrapes)]
        cpu.append((server.cpu_seconds - before) / scrapes)
    shown = f"{1e3 * min(cpu):.3f} ms of CPU a scrape (median of the rounds {1e3 * statistics.median(cpu):.3f})"
    share = f"{100 * min(cpu) / PERIOD_SECONDS:.2f} % of a core at 20 a second"
    print(f"{what}: {listed} names, {len(page)} bytes, {shown}, {share}")
    print_milliseconds("a scrape by the clock", seconds)


def main() -> None:
    options = create_parser(__doc__, adapters=10_000, names=100, scrapes=1000).parse_args()
    port = free_port()
    flags = ("--routing-port", str(port), "--max-routing-names", str(options.names), "--device-bytes", str(4 * GIB))
    original = {PRESET: make_bytes(load_backbone("minilm"), PRESET, 0)}
    with (
        serving_stock(original, options.adapters, *flags, "--host-bytes", "0") as (server, tasks),
        httpx2.Client(base_url=f"http://127.0.0.1:{port}", timeout=30) as picker,
    ):
        measure("no adapter on the device", server, picker, options.scrapes)
        run(ask_all(server.url, [predict_bytes(task, "a gem of a film") for task in tasks], 16))
        resident = int(server.counter("peltier_adapters"))
        measure(f"{resident} adapters on the device", server, picker, options.scrapes)


if __name__ == "__main__":
    main()
