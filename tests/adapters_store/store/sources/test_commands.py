"""`peltier push` and `peltier pull` as a user runs them, with a hub on loopback.

One test starts a process for each command, with the hub in its environment. A process imports torch, which takes
seconds, so the others run the commands in their own.
"""

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path

import httpx2
import huggingface_hub
import pytest
from peltier_backbone.backbone import Backbone
from peltier_client import cli
from peltier_client.commands import plugins

from tests.support.artifacts import MakeArtifact
from tests.support.hub_server import TOKEN, Hub

NAMES = ("push", "pull")
# `peltier(word, …) -> (status, output, error)`
Peltier = Callable[..., tuple[int, str, str]]
PROGRAM = """
from importlib.metadata import EntryPoint
from peltier_client import cli
from peltier_client.commands import plugins

names = ("push", "pull")
plugins.entry_points = lambda group: [EntryPoint(n, f"peltier_store.sources.commands:{n}", group) for n in names]
cli.main()
"""


def process(hub: Hub, *arguments: str | Path) -> "subprocess.CompletedProcess[str]":
    """Runs a command with the hub's address and a token in the environment."""
    environment = {**os.environ, "HF_ENDPOINT": hub.endpoint, "HF_HUB_DISABLE_XET": "1", "HF_TOKEN": TOKEN}
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


@pytest.fixture
def peltier(hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Peltier:
    """`peltier push` and `peltier pull` in this process."""
    entries = [EntryPoint(name, f"peltier_store.sources.commands:{name}", "peltier.commands") for name in NAMES]
    monkeypatch.setattr(plugins, "entry_points", lambda group: entries)
    monkeypatch.setenv("HF_TOKEN", TOKEN)

    def call(*words: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["peltier", *map(str, words)])
        capsys.readouterr()
        status = 0
        try:
            cli.main()
        except SystemExit as end:
            status = int(end.code or 0)
        return status, *capsys.readouterr()

    return call


@pytest.mark.slow  # below, pushes and pulls in this process
def test_what_is_pushed_is_pulled_again(hub: Hub, tmp_path: Path, bert: Backbone, make_artifact: MakeArtifact) -> None:
    """Bit by bit, from a private repository; the token is nowhere in the output."""
    artifact, mirror = tmp_path / "demo.safetensors", tmp_path / "mirror"
    artifact.write_bytes(make_artifact(bert))
    pushed = process(hub, "push", artifact, "hf://acme/demo@v1", "--private", "--json")
    assert pushed.returncode == 0, pushed.stderr
    commit = json.loads(pushed.stdout)["commit"]
    pulled = process(hub, "pull", "hf://acme/demo@v1", "--output", mirror, "--backbone", bert.name, "--json")
    assert pulled.returncode == 0, pulled.stderr
    (unit,) = json.loads(pulled.stdout)["pulled"]
    assert (unit["address"], unit["state"]) == (f"hf://acme/demo@{commit}/demo.safetensors", "new")
    assert (mirror / "demo.safetensors").read_bytes() == artifact.read_bytes()
    assert TOKEN not in pushed.stdout + pushed.stderr + pulled.stdout + pulled.stderr


@pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")  # of huggingface_hub
def test_a_hub_without_xet_gets_the_artifact_by_http(hub, tmp_path, bert, make_artifact, peltier, monkeypatch):
    """huggingface_hub itself would only try xet, because hf_xet is installed."""
    pytest.importorskip("hf_xet", reason="hf_xet has no build for this machine")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", False)
    artifact = tmp_path / "demo.safetensors"
    artifact.write_bytes(make_artifact(bert))
    status, output, error = peltier("push", artifact, "hf://acme/demo", "--private", "--json")
    assert status == 0, error
    assert [path for _, path, _ in hub.requests if "xet-write-token" in path]
    assert hub.repositories["acme/demo"].is_private
    found = hub.repositories["acme/demo"].commits[json.loads(output)["commit"]]
    assert found["demo.safetensors"] == artifact.read_bytes()
    assert "README.md" in found
    assert TOKEN not in output + error


def test_what_is_pulled_is_published(hub, tmp_path, bert, make_artifact, peltier, listen):
    """With `--upload`: what the server does not have becomes a version, and nothing becomes one twice."""
    artifacts = {f"{name}.safetensors": make_artifact(bert, name=name) for name in ("intents", "moods")}
    hub.add("acme/tasks", artifacts)
    with listen() as server:
        flags = ("--output", tmp_path / "mirror", "--backbone", bert.name, "--upload", "--url", server.url, "--json")

        def published() -> list[str]:
            status, output, error = peltier("pull", "hf://acme/tasks", *flags)
            assert status == 0, error
            found: list[str] = json.loads(output)["published"]
            return found

        assert published() == published() == ["intents@1", "moods@1"]
        artifact = httpx2.get(f"{server.url}/v1/adapters/intents/versions/1/artifact")
        assert artifact.content == artifacts["intents.safetensors"]
        hub.add("acme/tasks", {"intents.safetensors": make_artifact(bert, name="intents", seed=1)})
        assert published() == ["intents@2", "moods@1"]


def test_what_is_refused_sets_the_exit_status(hub: Hub, tmp_path: Path, bert: Backbone, peltier: Peltier) -> None:
    """1 with the reason for a repository that is refused, and for a source that is none."""
    hub.add("acme/bad", {"bad.safetensors": b"no artifact"})
    folder = ("--output", tmp_path / "mirror")
    status, output, error = peltier("pull", "hf://acme/bad", *folder, "--backbone", bert.name)
    assert (status, error) == (1, "")
    assert re.match("refused hf://acme/bad@[0-9a-f]{40}/bad.safetensors: the header claims", output)
    status, _, error = peltier("pull", "hf://acme", *folder)
    assert status == 1
    assert error.startswith("error: the source 'hf://acme' is not of the form")
    assert len(error.splitlines()) == 1
