"""What the metrics page and open consoles cost a server whose 10,000 adapters have all answered.

    .venv/bin/python benchmarks/monitoring.py [--adapters 10000] [--tabs 5] [--seconds 20]

The first lines are of the page with every label in use: a hundred tenants with five statuses each, a hundred versions,
fifty routes. The others are of a real server: its page, and the CPU time of its whole process while the given number of
tabs poll it every two seconds, in parts of one core, less that of the idle server before.
"""

import asyncio
import gc
import itertools
import time
from collections.abc import Callable
from functools import partial

import httpx2
from common.adapters import make_bytes
from common.callers import ask_all, predict_bytes, run
from common.harness import create_parser, print_milliseconds, seconds_of
from common.serving import Server, serving_stock
from peltier_backbone.load import load_backbone
from peltier_server.context import VersionLabels
from peltier_server.metrics.metrics import Metrics
from peltier_server.metrics.series import MatchedRoute

FORMATS = {"text": "text/plain;version=0.0.4", "OpenMetrics": "application/openmetrics-text;version=1.0.0"}
POLL_SECONDS = 2.0
NUM_TENANTS, NUM_ROUTES, CODES = 100, 50, (200, 404, 422, 429, 503)


def full_metrics(num_adapters: int) -> Metrics:
    """Every label that the bounds allow is in use."""
    metrics = Metrics()
    for number in range(num_adapters):
        metrics.versions.observe(VersionLabels(f"tenant-{number % NUM_TENANTS}", f"task-{number:05}", "1"), 200, 0.01)
    for number, code in itertools.product(range(2 * NUM_TENANTS), CODES):
        metrics.observe_request(f"tenant-{number}", code, 0.01)
        metrics.observe_truncation(f"tenant-{number}", 1)
    for number in range(NUM_ROUTES):
        metrics.observe_route(MatchedRoute("GET", f"/v1/route-{number}"), 0.01)
    # As a server does when it is ready.
    gc.collect()
    gc.freeze()
    return metrics


def show(what: str, call: Callable[[], object], clock: Callable[[], float] = time.perf_counter) -> None:
    """Prints the times of 20 calls, after the first."""
    call()
    print_milliseconds(what, [seconds_of(call, clock) for _ in range(20)])


def over_http(server: Server, tasks: list[str], tabs: int, seconds: float) -> None:
    """The page and the polls of a server whose adapters have all answered once."""
    run(ask_all(server.url, [predict_bytes(task, "a gem of a film") for task in tasks], 16))
    with httpx2.Client(base_url=server.url, timeout=30) as client:
        for name, accept in FORMATS.items():
            headers = {"accept": accept}
            show(f"/metrics over HTTP, {name}", partial(client.get, "/metrics", headers=headers))
    idle = server.core_share(seconds)
    polled = asyncio.run(polled_share(server, tabs, seconds))
    print(f"{tabs} tabs take {100 * (polled - idle):.2f} % of a core; the idle server {100 * idle:.2f} %")


async def polled_share(server: Server, tabs: int, seconds: float) -> float:
    """The share of a core that the server uses while tabs poll it."""
    async with httpx2.AsyncClient(base_url=server.url, timeout=30) as client:

        async def poll(number: int) -> None:
            await asyncio.sleep(POLL_SECONDS * number / tabs)
            while True:
                (await client.get("/metrics")).raise_for_status()
                await asyncio.sleep(POLL_SECONDS)

        polls = [asyncio.create_task(poll(number)) for number in range(tabs)]
        taken = await asyncio.to_thread(server.core_share, seconds)
        for task in polls:
            task.cancel()
        await asyncio.gather(*polls, return_exceptions=True)
    return taken


def main() -> None:
    options = create_parser(__doc__, adapters=10_000, tabs=5, seconds=20.0).parse_args()
    metrics = full_metrics(options.adapters)
    for name, accept in FORMATS.items():
        show(f"page of all labels, {name}", partial(metrics.exposition, accept), time.thread_time)
    originals = {"bitfit": make_bytes(load_backbone("minilm"), "bitfit", 0)}
    with serving_stock(originals, options.adapters) as (server, tasks):
        over_http(server, tasks, options.tabs, options.seconds)


if __name__ == "__main__":
    main()
