"""How long lookups take with ten thousand adapters: a task, a page of the list, a search; and a start of the server.

    .venv/bin/python benchmarks/listing.py [--adapters 10000]

Every adapter has two versions and an alias that splits between them. Resolving and pages are timed in memory, in
process CPU time; pages also over HTTP against a server with that registry, by the clock.
"""

import asyncio
import json
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from pathlib import Path

import httpx2
from common.adapters import make_bytes
from common.harness import cpu_seconds, create_parser, print_milliseconds
from common.serving import Stocked, manifest_text, register, serving
from peltier_backbone.load import load_backbone
from peltier_client.protocol.names import TaskReference
from peltier_server.auth.keyring import LOCAL, TENANT
from peltier_server.catalog.catalog import Catalog
from peltier_server.catalog.published import Published
from peltier_server.context import RequestContext
from peltier_store.location import StoreLocation
from peltier_store.registry.database import Access, create_engines, database_url
from peltier_store.registry.extensions.registry import Registry
from peltier_store.registry.tables import AliasRow
from sqlalchemy import insert

PAGE = 100


async def fill(url: str, manifest: str, count: int) -> None:
    """Adapters `task-00000`, … with two versions each, straight into the tables: publishing each would take minutes."""
    digests = [tuple(f"sha256:{2 * number + version:064x}" for version in (1, 2)) for number in range(count)]
    stocked = [Stocked(f"task-{number:05}", own, 100_000, "compacter", manifest) for number, own in enumerate(digests)]
    await register(url, stocked)
    at, engines = datetime.now(UTC), create_engines(database_url(url))
    aliases = [
        {"adapter_id": place, "alias": "production", "split": {"1": 0.5, "2": 0.5}, "is_current": True,
         "created_at": at, "created_by": "benchmark"}
        for place in range(1, count + 1)
    ]  # fmt: skip
    await engines.run(Access.WRITE, lambda connection: connection.execute(insert(AliasRow), aliases))
    await engines.close()


async def read(url: str) -> Catalog:
    """The catalog of that registry, read as by a starting server."""
    registry, catalog = await Registry.open(url), Catalog()
    start = time.process_time()
    snapshot = await registry.snapshot()
    for record in snapshot.adapters:
        catalog.replace(record.tenant, record.name, Published.of(record))
    print(f"reading the registry             {time.process_time() - start:8.2f} s")
    await registry.close()
    return catalog


def mean_cpu_seconds(call: Callable[..., object], *arguments: Sequence[object]) -> float:
    """CPU seconds of one call, on average of those with each of the arguments."""
    return cpu_seconds(lambda: list(map(call, *arguments))) / len(arguments[0])


def in_memory(catalog: Catalog, count: int) -> None:
    texts = [f"task-{number * 7919 % count:05}" for number in range(20_000)]
    references = [TaskReference.parse(text) for text in texts]
    origins = [RequestContext(f"{number:032x}", known_caller=LOCAL) for number in range(20_000)]
    resolve = mean_cpu_seconds(catalog.resolve, references, origins)
    whole = mean_cpu_seconds(lambda text, origin: catalog.resolve(TaskReference.parse(text), origin), texts, origins)
    print(f"resolving a reference            {1e6 * resolve:8.2f} us")
    print(f"reading the text and resolving   {1e6 * whole:8.2f} us")
    after = [f"task-{number * 97 % count:05}" for number in range(200)]
    page = mean_cpu_seconds(lambda name: catalog.page(TENANT, after=name, containing="", limit=PAGE), after)
    parts = [f"{number:03}7" for number in range(200)]
    search = mean_cpu_seconds(lambda part: catalog.page(TENANT, after="", containing=part, limit=PAGE), parts)
    print(f"finding a page of {PAGE}            {1e6 * page:8.2f} us")
    print(f"searching for a page             {1e6 * search:8.2f} us")


def over_http(url: str) -> None:
    with httpx2.Client(base_url=url, timeout=30) as client:
        for what, query in (("a page", {}), ("a page of a search", {"q": "7"})):
            seconds, cursor = [], ""
            while cursor is not None:
                start = time.perf_counter()
                answer = client.get("/v1/adapters", params={"limit": PAGE, "cursor": cursor, **query})
                seconds.append(time.perf_counter() - start)
                cursor = json.loads(answer.content)["next_cursor"]
            print_milliseconds(f"{what} over HTTP", seconds)


def main() -> None:
    options = create_parser(__doc__, adapters=10_000).parse_args()
    manifest = manifest_text(make_bytes(load_backbone("minilm"), "compacter", 0))
    with tempfile.TemporaryDirectory() as directory:
        store = Path(directory) / "store"
        store.mkdir()
        registry = StoreLocation.of(store).registry
        asyncio.run(fill(registry, manifest, options.adapters))
        in_memory(asyncio.run(read(registry)), options.adapters)
        with serving(store=store) as server:
            over_http(server.url)


if __name__ == "__main__":
    main()
