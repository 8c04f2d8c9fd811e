"""What ten thousand adapters cost: resolving a task, a page of the list, a search, a start of the server.

    .venv/bin/python benchmarks/listing.py [--adapters 10000]

Every adapter has two versions and an alias that splits between them. Resolving and pages are timed in memory, in
process CPU time; pages also over HTTP against a server with that registry, by the clock.
"""

import argparse
import asyncio
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import httpx2
from adapters import make_bytes
from peltier_adapters.manifest import read_header
from peltier_adapters.registry import Registry
from peltier_adapters.registry.database import create_engine, database_url
from peltier_adapters.registry.tables import AdapterRow, AliasRow, RevisionRow, VersionRow
from peltier_backbone.load import load_backbone
from peltier_client import Client
from peltier_client.protocol import TaskReference
from peltier_server.access.caller import LOCAL, TENANT
from peltier_server.origin import Origin
from peltier_server.versions.catalog import Catalog
from sqlalchemy import insert, update
from upload import URL, is_ready, serve

PAGE = 100


async def fill(url: str, manifest: str, count: int) -> None:
    """Adapters `task-00000`, … straight into the tables: publishing each would take minutes."""
    await (await Registry.open(url)).close()
    at, engine = datetime.now(UTC), create_engine(database_url(url))
    adapters = [
        {"id": n + 1, "tenant": TENANT, "name": f"task-{n:05}", "last_number": 2, "is_public": False, "revision": 2}
        for n in range(count)
    ]
    versions = [
        {"adapter_id": n + 1, "number": number, "digest": f"sha256:{2 * n + number:064x}", "size_bytes": 100_000,
         "preset": "compacter", "manifest": manifest, "created_at": at, "created_by": "benchmark"}
        for n in range(count) for number in (1, 2)
    ]  # fmt: skip
    aliases = [
        {"adapter_id": n + 1, "alias": "production", "split": {"1": 0.5, "2": 0.5}, "is_current": True,
         "created_at": at, "created_by": "benchmark"}
        for n in range(count)
    ]  # fmt: skip
    async with engine.begin() as connection:
        await connection.execute(update(RevisionRow).values(number=2))
        for table, rows in ((AdapterRow, adapters), (VersionRow, versions), (AliasRow, aliases)):
            await connection.execute(insert(table), rows)
    await engine.dispose()


async def read(url: str) -> Catalog:
    """The catalog of that registry, as a server that starts reads it."""
    registry, catalog = await Registry.open(url), Catalog()
    start = time.process_time()
    snapshot = await registry.snapshot()
    for record in snapshot.adapters:
        catalog.apply(record)
    print(f"reading the registry             {time.process_time() - start:8.2f} s")
    await registry.close()
    return catalog


def cpu_seconds(call: Callable[[int], object], repeats: int) -> float:
    """Of one call, on average."""
    start = time.process_time()
    for number in range(repeats):
        call(number)
    return (time.process_time() - start) / repeats


def in_memory(catalog: Catalog, count: int) -> None:
    texts = [f"task-{number * 7919 % count:05}" for number in range(20_000)]
    references = [TaskReference.parse(text) for text in texts]
    origins = [Origin(LOCAL, f"{number:032x}") for number in range(20_000)]
    resolve = cpu_seconds(lambda n: catalog.resolve(references[n], origins[n]), len(texts))
    whole = cpu_seconds(lambda n: catalog.resolve(TaskReference.parse(texts[n]), origins[n]), len(texts))
    print(f"resolving a reference            {1e6 * resolve:8.2f} us")
    print(f"reading the text and resolving   {1e6 * whole:8.2f} us")
    after = [f"task-{number * 97 % count:05}" for number in range(200)]
    page = cpu_seconds(lambda n: catalog.page(TENANT, after=after[n], containing="", limit=PAGE), 200)
    search = cpu_seconds(lambda n: catalog.page(TENANT, after="", containing=f"{n:03}7", limit=PAGE), 200)
    print(f"finding a page of {PAGE}            {1e6 * page:8.2f} us")
    print(f"searching for a page             {1e6 * search:8.2f} us")


def over_http(count: int) -> None:
    with httpx2.Client(base_url=URL, timeout=30) as client:
        for what, query in (("a page", {}), ("a page of a search", {"q": "7"})):
            seconds, cursor = [], ""
            while cursor is not None:
                start = time.perf_counter()
                answer = client.get("/v1/adapters", params={"limit": PAGE, "cursor": cursor, **query})
                seconds.append(time.perf_counter() - start)
                cursor = json.loads(answer.content)["next_cursor"]
            ordered = [1e3 * one for one in sorted(seconds)]
            print(
                f"{what:20} over HTTP   median {statistics.median(ordered):6.2f} ms   "
                f"p90 {ordered[int(0.9 * len(ordered))]:6.2f} ms   n {len(ordered)}"
            )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--adapters", type=int, default=10_000)
    options = parser.parse_args()
    manifest = read_header(make_bytes(load_backbone("minilm"), "compacter", 0))[0]
    with tempfile.TemporaryDirectory() as directory:
        url = f"sqlite+aiosqlite:///{directory}/store/registry.db"
        Path(directory, "store").mkdir()
        asyncio.run(fill(url, json.dumps(manifest.model_dump(mode="json")), options.adapters))
        in_memory(asyncio.run(read(url)), options.adapters)
        server = serve(Path(directory) / "store")
        try:
            with Client(URL) as client:
                while not is_ready(client):
                    time.sleep(0.2)
            over_http(options.adapters)
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main()
