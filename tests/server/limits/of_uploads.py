"""Bounds of uploads and of the fields of an artifact."""

import asyncio
import json
import struct
from asyncio import Semaphore
from collections.abc import Callable
from typing import Any
from unittest.mock import patch

from peltier_adapters.artifact.manifest import MAX_HEADER_BYTES
from peltier_client.protocol.reports import MAX_REPORT_BYTES
from peltier_server.extensions.settings import SETTINGS
from peltier_server.http.uploads import UploadTurns

from tests.server.limits.probe import Met, probe
from tests.server.limits.servers import STALL_SECONDS, Servers

_IN_MEMORY = 2 * SETTINGS["max_artifact_bytes"].default


probe("size of an artifact")(lambda servers: servers.bert.upload(bytes(5 * 1024 * 1024 + 70_000)))


@probe("size of the report of a training", "peltier_client.protocol.reports.MAX_REPORT_BYTES")
def _(servers: Servers) -> Met:
    artifact = servers.make_artifact(servers.backbones["bert"], "bitfit")
    files = {"file": ("a.safetensors", artifact), "report": ("a.report.json", bytes(MAX_REPORT_BYTES + 1))}
    return servers.bert.client.post("/v1/adapters", files=files)


probe("size of the other parts of the form", 4096)(lambda servers: servers.bert.upload(b"", name="a" * 5000))


@probe("uploads received at once", "peltier_server.http.uploads.MAX_RECEIVED_AT_ONCE")
def _(servers: Servers) -> Met:
    turns = servers.bert.listening.app.state.upload_turns
    with patch.object(turns, "_patience_seconds", STALL_SECONDS), patch.object(turns, "_receiving", Semaphore(0)):
        return servers.bert.upload(b"")


@probe("uploads received at once, of one tenant", "peltier_server.http.uploads.MAX_RECEIVED_OF_ONE")
def _(servers: Servers) -> Met:
    turns, places = servers.bert.listening.app.state.upload_turns, {"default": Semaphore(0)}
    with patch.object(turns, "_patience_seconds", STALL_SECONDS), patch.object(turns, "_of_tenant", places):
        return servers.bert.upload(b"")


@probe("bytes of uploads in memory at once", _IN_MEMORY)
def _(_: Servers) -> Met:
    async def overtakes() -> bool:
        turns = UploadTurns(5, 1)
        async with turns.read(6):
            second = asyncio.create_task(_read(turns, 6))
            await asyncio.sleep(0)
            overtaken = second.done()
        await second
        return overtaken

    assert not asyncio.run(overtakes())
    return "other uploads wait"


probe("size of an artifact's header", "peltier_adapters.artifact.manifest.MAX_HEADER_BYTES")(
    lambda servers: servers.bert.upload(struct.pack("<Q", MAX_HEADER_BYTES + 1) + b" " * (MAX_HEADER_BYTES + 1))
)
probe("strings, commas and brackets of a header or a manifest", "peltier_adapters.artifact.manifest.MAX_JSON_TOKENS")(
    lambda servers: servers.bert.upload(struct.pack("<Q", 140_000) + b"[" * 140_000)
)
probe("multiply-adds a token that an adapter adds to a block, as a multiple of the block's own")(
    lambda servers: servers.bert.upload(_sized(servers, "adapterdrop", 230, skip="2"))
)
probe("elements of an adapter on the device, as a multiple of the weights in the backbone's blocks")(
    lambda servers: servers.bert.upload(_sized(servers, "pfeiffer", 183))
)


@probe("labels of a task", 4096)
def _(servers: Servers) -> Met:
    def add_labels(manifest: dict[str, Any]) -> None:
        manifest["task"]["labels"] = [f"label {number}" for number in range(4097)]

    return servers.bert.upload(_changed(servers, "bitfit", add_labels))


@probe("labels of a token classification", "peltier_adapters.spec.tasks.MAX_TAGS")
def _(servers: Servers) -> Met:
    def make_tags(manifest: dict[str, Any]) -> None:
        manifest["task"] |= {"type": "token-classification", "inputs": "single"}
        manifest["task"]["labels"] = [f"B-{number}" for number in range(1025)]

    return servers.bert.upload(_changed(servers, "bitfit", make_tags))


@probe("values of a vector of a multi-vector embedding", "peltier_adapters.spec.tasks.MAX_VECTOR_SIZE")
def _(servers: Servers) -> Met:
    def widen(manifest: dict[str, Any]) -> None:
        manifest["task"] |= {"type": "multi-vector-embedding", "labels": []}
        manifest["parts"][-1] |= {"pooling": "tokens", "outputs": 1025}

    return servers.bert.upload(_changed(servers, "bitfit", widen))


@probe("terms of a sparse embedding", "peltier_adapters.spec.head.MAX_TERMS")
def _(servers: Servers) -> Met:
    def add_terms(manifest: dict[str, Any]) -> None:
        manifest["parts"][-1] |= {"pooling": "tokens", "terms": 1025}

    return servers.bert.upload(_changed(servers, "bitfit", add_terms))


probe("sizes in a part: bottleneck, rank, `n`", "peltier_adapters.spec.maps.MAX_SIZE")(
    lambda servers: servers.bert.upload(
        _changed(servers, "pfeiffer", lambda manifest: manifest["parts"][0].update(size=4097))
    )
)
probe("prefix or prompt length", "peltier_adapters.spec.parts.MAX_PREFIX")(
    lambda servers: servers.bert.upload(
        _changed(servers, "prefix", lambda manifest: manifest["parts"][0].update(length=513))
    )
)


async def _read(turns: UploadTurns, num_bytes: int) -> None:
    async with turns.read(num_bytes):
        pass


def _sized(servers: Servers, preset: str, size: int, **overrides: str) -> bytes:
    overrides = {"bottleneck": str(size), **overrides}
    return servers.make_artifact(servers.backbones["bert"], preset, overrides=overrides)


def _changed(servers: Servers, preset: str, change: Callable[[dict[str, Any]], None]) -> bytes:
    data = servers.make_artifact(servers.backbones["bert"], preset)
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    manifest = json.loads(header["__metadata__"]["manifest"])
    change(manifest)
    header["__metadata__"]["manifest"] = json.dumps(manifest)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data[8 + length :]
