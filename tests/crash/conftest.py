"""Callers with their own artifacts, and servers over one store."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from peltier_adapters.artifact.artifact import read_artifact
from peltier_backbone.backbone import Backbone

from tests.crash.callers import Publisher, Specimen
from tests.support.server_process import Server

_NUM_PUBLISHERS = 4
_NUM_SPECIMENS = 24
_PRESETS = ("compacter", "lora", "adamix")


@pytest.fixture(scope="session")
def specimens(bert: Backbone, make_artifact: Callable[..., bytes]) -> list[Specimen]:
    """Artifacts with different answers."""
    made = [make_artifact(bert, _PRESETS[seed % 3], seed=seed) for seed in range(_NUM_SPECIMENS)]
    parsed = [(data, read_artifact(data, bert)) for data in made]
    return [Specimen(data, artifact.digest, artifact.manifest.golden[1]) for data, artifact in parsed]


@pytest.fixture
def publishers(specimens: list[Specimen]) -> list[Publisher]:
    """Each changes its own adapter; they share the artifacts, so they share blobs."""
    return [Publisher(f"adapter-{number}", specimens, seed=number) for number in range(_NUM_PUBLISHERS)]


@pytest.fixture
def start(bert_directory: Path, tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """`start(*flags, **options)`: a ready server; without other flags over the same store as the one before."""
    servers: list[Server] = []

    def make(*flags: str, **options: Any) -> Server:
        common = ("--backbone", str(bert_directory), "--store", str(tmp_path / "store"))
        servers.append(Server(tmp_path / f"log{len(servers)}", *common, *flags, **options))
        return servers[-1].wait_until_ready()

    yield make
    for server in servers:
        server.end()
