"""How long the registry's calls take with 10,000 adapters: milliseconds, median and 95th percentile.

    .venv/bin/python benchmarks/registry.py [--registry postgresql+asyncpg://…] [--adapters 10000] [--calls 200]

The database must be new; without one, a SQLite database in a temporary directory is used. Manifests
have 4 KiB, as those of the example adapters do.
"""

import asyncio
import tempfile
import time
from collections.abc import Awaitable, Callable

from common.options import create_parser
from common.stock import Stocked, register
from common.turns import percentile
from peltier_store.registry import Registry

MANIFEST = "x" * 4096

Call = Callable[[int], Awaitable[object]]


async def fill(url: str, num_adapters: int) -> None:
    """`num_adapters` of one version each, without going through `publish`."""
    digests = [f"sha256:{number:064x}" for number in range(1, num_adapters + 1)]
    stocked = [Stocked(f"full-{number}", (digest,), 100_000, "compacter", MANIFEST)
               for number, digest in enumerate(digests, 1)]  # fmt: skip
    await register(url, stocked, first_id=10**6)


async def measure(name: str, call: Call, num_calls: int) -> None:
    """Prints how long one call after the other takes."""
    await call(0)
    seconds = []
    for number in range(1, num_calls + 1):
        start = time.perf_counter()
        await call(number)
        seconds.append(time.perf_counter() - start)
    middle, p95 = (1000 * percentile(seconds, percent) for percent in (50, 95))
    print(f"{name:38} {middle:8.2f} {p95:8.2f}")


async def run(url: str, num_adapters: int, num_calls: int) -> None:
    """Every call in turn."""
    await fill(url, num_adapters)
    registry = await Registry.open(url)

    async def publish(number: int) -> None:
        reservation = await registry.reserve(f"sha256:{10**9 + number:064x}")
        given = {"size_bytes": 100_000, "preset": "compacter", "manifest": MANIFEST, "actor": "benchmark"}
        await registry.publish("default", f"new-{number % 10}", reservation, **given)

    async def follow(number: int) -> None:
        before = await registry.revision()
        await registry.set_alias("default", "full-1", "production", {1: 1.0}, actor="benchmark")
        await registry.snapshot(before)

    async def flip(number: int) -> None:
        await registry.set_alias("default", f"full-{1 + number}", "production", {1: 1.0}, actor="benchmark")

    few = max(1, num_calls // 50)
    print(f"{url.partition('+')[0]} with {num_adapters} adapters {'median':>12} {'p95 (ms)':>8}")
    await measure("reserve and publish", publish, num_calls)
    await measure("alias flip", flip, min(num_calls, num_adapters - 1))
    await measure("revision, as every poll asks", lambda _: registry.revision(), num_calls)
    await measure("revision, alias flip, snapshot of it", follow, num_calls)
    await measure("snapshot of everything", lambda _: registry.snapshot(), few)
    await measure("page of 100 of the audit log", lambda _: registry.audit(limit=100), num_calls)
    await measure("all digests", lambda _: registry.digests(), few)
    await registry.close()


def main() -> None:
    parser = create_parser(__doc__)
    parser.add_argument("--registry")
    parser.add_argument("--adapters", type=int, default=10_000)
    parser.add_argument("--calls", type=int, default=200)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as directory:
        url = given.registry or f"sqlite+aiosqlite:///{directory}/registry.db"
        asyncio.run(run(url, given.adapters, given.calls))


if __name__ == "__main__":
    main()
