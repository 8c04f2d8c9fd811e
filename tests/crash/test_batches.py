"""A batch outlives `kill -9` of its server."""

import asyncio
import json
import sqlite3
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from peltier_client.protocol.administration import TenantQuotas
from peltier_store.location import StoreLocation
from peltier_store.registry.extensions.registry import Registry

from tests.support.server_process import Server

# A part with all that a small quota lets through is stored after a second in place of ten.
_SHORT_TURNS = "from peltier_server.extensions.batches import runner; runner._PART_SECONDS = 1.0"


@pytest.mark.parametrize(
    ("num_kills", "num_lines", "tokens_per_second", "first"),
    [(1, 128, 100, _SHORT_TURNS), pytest.param(2, 1_500, 2_000, "", marks=pytest.mark.slow)],
)
def test_a_killed_server_loses_no_line_and_repeats_none(
    start: Callable[..., Server], tmp_path: Path, num_kills: int, num_lines: int, tokens_per_second: int, first: str
) -> None:
    """Killed in the middle: each custom id has one result, and stored parts are not computed again."""
    # So slow that much is left to be done, however long this test takes to see that something is done.
    _limit(tmp_path / "store", TenantQuotas(tokens_per_second=tokens_per_second))
    server = start(first=first)
    body = {"model": "_backbone", "dimensions": 2, "truncate": True}
    rows = [
        {
            "custom_id": f"row-{number}",
            "method": "POST",
            "url": "/v1/embeddings",
            "body": {**body, "input": f"a film {number} " * 20},
        }
        for number in range(num_lines)
    ]
    data = "".join(f"{json.dumps(row)}\n" for row in rows)
    form = {"files": {"file": ("rows.jsonl", data.encode())}, "data": {"purpose": "batch"}}
    file = server.client.post("/v1/files", **form).json()["id"]
    asked = {"input_file_id": file, "endpoint": "/v1/embeddings", "completion_window": "24h"}
    batch = server.client.post("/v1/batches", json=asked).json()["id"]
    done = 0
    for _ in range(num_kills):
        done = _until(server, batch, lambda found, least=done: _num_done(found) > least)
        assert done < num_lines
        server.kill()
        _end_leases(tmp_path / "store" / "registry.db")
        server = start(first=first)
        assert _num_done(_find(server, batch)) >= done
    _limit(tmp_path / "store", TenantQuotas())
    _until(server, batch, lambda found: found["status"] == "completed")
    found = _find(server, batch)
    assert (found["request_counts"]["failed"], found["error_file_id"]) == (0, None)
    lines = server.client.get(f"/v1/files/{found['output_file_id']}/content").text.splitlines()
    assert [json.loads(line)["custom_id"] for line in lines] == [row["custom_id"] for row in rows]


def _find(server: Server, batch: str) -> dict[str, Any]:
    return server.client.get(f"/v1/batches/{batch}").json()


def _num_done(found: dict[str, Any]) -> int:
    return found["request_counts"]["completed"]


def _until(server: Server, batch: str, condition: Callable[[dict[str, Any]], bool]) -> int:
    """The number of results once the batch fulfils the condition; fails after four minutes."""
    for _ in range(12000):
        found = _find(server, batch)
        if condition(found):
            return _num_done(found)
        time.sleep(0.02)
    raise AssertionError(f"the batch is {found}")


def _limit(store: Path, quotas: TenantQuotas) -> None:
    """Sets what the tenant may ask for, in the registry."""

    async def limit() -> None:
        registry = await Registry.open(StoreLocation.of(store).registry)
        await registry.update_tenant("default", quotas, actor="test")
        await registry.close()

    asyncio.run(limit())


def _end_leases(registry: Path) -> None:
    """Lets the leases of dead servers end now in place of in a minute."""
    with sqlite3.connect(registry) as connection:
        connection.execute("UPDATE batches SET lease_expires_at = created_at WHERE lease_expires_at IS NOT NULL")
    connection.close()
