"""How long tenants wait beside a flood: a running server over a real socket, and one tenant that sends all it can.

    .venv/bin/python benchmarks/fairness.py [--seconds 12] [--max-batch-tokens 1024] [--data validation.jsonl.gz]

The server has one thread and MiniLM. For each line of the table two tenants send one sentence every 200 ms each: alone;
beside a tenant that keeps 16 requests of 32 sentences in progress; with that tenant's own key, where they share its
queue and wait as every tenant would without shares; and with that key and a priority. Then tenants of weights 1 and 3
flood the server, and the benchmark reads the served tokens from `/metrics` as often as possible. At last it measures
the scheduler alone with 100,000 waiting rows of 10, 1,000 and 10,000 tenants: microseconds of CPU time per row.
"""

import asyncio
import random
import statistics
import time
from collections import Counter
from collections.abc import Awaitable
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial

from common.adapters import make_bytes
from common.harness import Table, add_data, cpu_seconds, create_parser, percentile
from common.sentences import load_sentences
from common.serving import serving
from common.tenants import ENVIRONMENT, TenantClients, flooding
from peltier_backbone.load import load_backbone
from peltier_server.fairness.scheduler import Scheduler

LITTLE, FLOODS = ("one", "two"), {"flood": 1.0, "three": 3.0}
_EVERY_SECONDS, _NUM_FLOODING, _SENTENCES_AT_ONCE = 0.2, 16, 32
_BATCH_TOKENS, _BATCH_ROWS = 4096, 128


class Traffic:
    """What the tenants send to a server."""

    def __init__(self, tenants: TenantClients, sentences: list[str]) -> None:
        self._tenants = tenants
        self._sentences = sentences
        self._draw = random.Random(0)

    async def served(self) -> Counter[str]:
        """Tokens computed for each tenant until now."""
        return await self._tenants.counter("peltier_tenant_served_tokens_total")

    async def ask_little(self, tenant: str, seconds: float, priority: int = 0) -> list[float]:
        """Seconds of each answer to one sentence at a time, sent at a steady rate."""
        end, asked = time.monotonic() + seconds, []
        while time.monotonic() < end:
            asked.append(asyncio.ensure_future(self._ask_one(tenant, priority)))
            await asyncio.sleep(_EVERY_SECONDS)
        return list(await asyncio.gather(*asked))

    def flood(self, tenant: str) -> AbstractAsyncContextManager[None]:
        """Keeps `_NUM_FLOODING` requests in progress while the block runs."""

        async def ask() -> None:
            texts = self._draw.sample(self._sentences, _SENTENCES_AT_ONCE)
            await self._tenants.clients[tenant].predict("demo", texts)

        return flooding(ask, _NUM_FLOODING)

    async def _ask_one(self, tenant: str, priority: int) -> float:
        begun = time.perf_counter()
        text = self._draw.choice(self._sentences)
        await self._tenants.clients[tenant].predict("demo", text, priority=priority)
        return time.perf_counter() - begun


@dataclass(eq=False)
class Waiting:
    """A row for the scheduler alone."""

    tenant: str
    pass_cost: int
    rank: float


async def measure(table: Table, traffic: Traffic, what: str, *asking: Awaitable[list[float]]) -> None:
    """Prints how long answers took, and how much was computed meanwhile."""
    before, begun = await traffic.served(), time.monotonic()
    seconds = [one for answers in await asyncio.gather(*asking) for one in answers]
    taken, served = time.monotonic() - begun, await traffic.served() - before
    p50, p99 = (1e3 * percentile(seconds, percent) for percent in (50, 99))
    little, flood = sum(served[name] for name in LITTLE), served["flood"]
    rate = (little + flood) / taken
    table.row(what, len(seconds), f"{p50:.0f}", f"{p99:.0f}", f"{little:,}", f"{flood:,}", f"{rate:,.0f}")


async def show_little(traffic: Traffic, seconds: float) -> None:
    """Prints the table of the tenants that send little."""
    table = Table("sentences every 200 ms, asked", "n", "p50 ms", "p99 ms", "tokens", "flood", "a second", first=34)
    show = partial(measure, table, traffic)
    await show("by two tenants, no flood", *(traffic.ask_little(name, seconds) for name in LITTLE))
    async with traffic.flood("flood"):
        await asyncio.sleep(3)
        await show("by two tenants, beside a flood", *(traffic.ask_little(name, seconds) for name in LITTLE))
        await show("by the flooding tenant itself", traffic.ask_little("flood", seconds))
        await show("by it, with priority 5", traffic.ask_little("flood", seconds, priority=5))


async def show_weights(traffic: Traffic, seconds: float) -> None:
    """Prints the largest gap between two tenants that flood the server."""
    async with traffic.flood("flood"), traffic.flood("three"):
        await asyncio.sleep(3)
        before, end_at, gaps = await traffic.served(), time.monotonic() + seconds, []
        while time.monotonic() < end_at:
            got = await traffic.served() - before
            gaps.append(abs(got["flood"] - got["three"] / 3))
    print(
        f"\nweights 1 and 3, both flooding: {got['flood']:,} and {got['three']:,} tokens, 1 : "
        f"{got['three'] / max(1, got['flood']):.3f}; of {len(gaps)} looks the largest gap, in tokens a weight, "
        f"{max(gaps):,.0f} (median {statistics.median(gaps):,.0f})"
    )


def show_scheduler(num_tenants: int, num_rows: int = 100_000) -> None:
    """Prints the CPU time to add a row to the scheduler and to take it out."""
    draw = random.Random(0)
    rows = [Waiting(str(number % num_tenants), draw.randint(5, 512), number) for number in range(num_rows)]
    scheduler = Scheduler[Waiting](_BATCH_TOKENS, lambda _: 1.0)
    put = cpu_seconds(lambda: [scheduler.put(row) for row in rows])
    taken = cpu_seconds(lambda: [*iter(partial(take_batch, scheduler), 0)])
    print(
        f"{num_tenants:>7,} tenants, {num_rows:,} rows wait: {put / num_rows * 1e6:5.1f} µs to put a row, "
        f"{taken / num_rows * 1e6:5.1f} µs to take one"
    )


def take_batch(scheduler: Scheduler[Waiting]) -> int:
    """Takes one batch as the server's queue does; returns its number of rows."""
    tokens, rows = _BATCH_TOKENS, 0
    while rows < _BATCH_ROWS and (row := scheduler.next(tokens if rows else None)) is not None:
        scheduler.serve(row)
        tokens, rows = tokens - row.pass_cost, rows + 1
    return rows


async def show_server(url: str, sentences: list[str], data: bytes, seconds: float) -> None:
    """Prints all measurements that need a server."""
    async with TenantClients(url) as tenants:
        for name, weight in {**dict.fromkeys(LITTLE, 1.0), **FLOODS}.items():
            await tenants.add(name, {"demo": data}, weight)
        traffic = Traffic(tenants, sentences)
        await show_little(traffic, seconds)
        await show_weights(traffic, seconds)


def main() -> None:
    parser = create_parser(__doc__, seconds=12.0, max_batch_tokens=1024)
    add_data(parser)
    given = parser.parse_args()
    sentences = load_sentences(given.data, 800)
    data = make_bytes(load_backbone("minilm"), "compacter", 0)
    with serving("--max-batch-tokens", str(given.max_batch_tokens), environment=ENVIRONMENT) as server:
        asyncio.run(show_server(server.url, sentences, data, given.seconds))
    print()
    for num_tenants in (10, 1_000, 10_000):
        show_scheduler(num_tenants)


if __name__ == "__main__":
    main()
