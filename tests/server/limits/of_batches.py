"""Bounds of batches."""

import json
import time
from collections.abc import Sequence
from typing import Any
from unittest.mock import patch

import httpx2
from peltier_server.extensions.batches import runner
from peltier_store.registry.extensions import batches

from tests.server.limits.probe import Met, probe
from tests.server.limits.servers import Servers, Small


def _rows(count: int, **given: object) -> list[dict[str, object]]:
    body = {"model": "_backbone", "input": "a good film"}
    row = {"method": "POST", "url": "/v1/embeddings", "body": body}
    return [{"custom_id": str(number), **row, **given} for number in range(count)]


def _begin(small: Small, rows: Sequence[object]) -> httpx2.Response:
    data = "".join(f"{json.dumps(row)}\n" for row in rows).encode()
    files = {"file": ("rows.jsonl", data)}
    file = small.client.post("/v1/files", files=files, data={"purpose": "batch"}).raise_for_status().json()["id"]
    asked = {"input_file_id": file, "endpoint": "/v1/embeddings", "completion_window": "24h"}
    return small.client.post("/v1/batches", json=asked)


def _ended(small: Small, rows: Sequence[object]) -> dict[str, Any]:
    batch = _begin(small, rows).raise_for_status().json()
    for _ in range(600):
        found: dict[str, Any] = small.client.get(f"/v1/batches/{batch['id']}").json()
        if found["status"] in ("completed", "failed"):
            return found
        time.sleep(0.1)
    raise AssertionError(found)


def _results(small: Small, file_id: str) -> list[dict[str, Any]]:
    text = small.client.get(f"/v1/files/{file_id}/content").text
    return [json.loads(line) for line in text.splitlines()]


probe("requests of a batch")(lambda servers: _begin(servers.bert, _rows(7)))


@probe("batches of a tenant that have not ended", "peltier_store.registry.extensions.batches.MAX_BATCHES")
def _(servers: Servers) -> Met:
    with patch.object(batches, "MAX_BATCHES", 0):
        return _begin(servers.bert, _rows(1))


@probe("characters of a `custom_id`", "peltier_client.protocol.batches.MAX_CUSTOM_ID_CHARS")
def _(servers: Servers) -> Met:
    found = _ended(servers.bert, _rows(1, custom_id="x" * 513))
    assert found["status"] == "failed"
    assert found["errors"]["data"][0]["message"] == "line 1: custom_id must be a text of 1 to 512 characters"
    return "the batch fails, and its errors name the line"


@probe("bytes of results after which the other requests of a batch fail")
def _(servers: Servers) -> Met:
    with patch.object(runner, "_PART_LINES", 1):
        found = _ended(servers.bert, _rows(2))
    assert [len(_results(servers.bert, found[f"{kind}_file_id"])) for kind in ("output", "error")] == [1, 1]
    (wrong,) = _results(servers.bert, found["error_file_id"])
    assert wrong["error"]["message"] == "the results of the batch have more than the maximum of 100 bytes"
    return "their errors are in the file of errors"


@probe("servers that end before the next results of a batch", "peltier_store.registry.extensions.queue.MAX_ATTEMPTS")
def _(servers: Servers) -> Met:
    with patch.object(runner, "MAX_ATTEMPTS", 0):
        assert _ended(servers.bert, _rows(1))["status"] == "failed"
    return "the batch fails"
