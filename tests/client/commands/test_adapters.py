"""`peltier download`."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.client.conftest import adapter
from tests.client.typed_commands import Peltier, peltier

__all__ = ["peltier"]


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def test_a_version_is_written_as_it_was_uploaded(peltier: Peltier, tmp_path: Path) -> None:
    """To a file named after it, or the given one; nothing is said on stderr, which is no terminal."""
    outcome = peltier("download", "sst2@1")
    assert (outcome.out, outcome.err) == ("wrote sst2@1 to sst2-1.safetensors (8 bytes)\n", "")
    assert (tmp_path / "sst2-1.safetensors").read_bytes() == b"artifact"
    document = json.loads(peltier("download", "sst2@1", "--output", "f", "--json").out)
    assert document == {"name": "sst2", "version": 1, "output": "f", "size_bytes": 8}


def test_a_name_is_the_version_that_answers(peltier: Peltier, server: Any, answer: Any) -> None:
    """Of a split, one must be named."""
    found = adapter("sst2") | {"aliases": {"live": {"1": 1.0}}, "live": {"1": 0.9, "2": 0.1}}
    server.planned.append(answer(200, found))
    assert peltier("download", "sst2@live").out.startswith("wrote sst2@1 to ")
    server.planned.append(answer(200, found))
    outcome = peltier("download", "sst2")
    assert outcome.status == 1
    assert outcome.err == "error: task 'sst2' answers from versions 1, 2: name one version, such as sst2@1\n"
    server.planned.append(answer(200, found))
    assert "task 'sst2@none' is no alias" in peltier("download", "sst2@none").err
