"""`peltier push` and `peltier pull` as a user runs them, with a hub on loopback.

Two tests start a process for each command, with the hub in its environment. A process imports torch, which takes
seconds, so the others run the command in their own.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from peltier_backbone.backbone import Backbone
from peltier_client import cli
from peltier_client.commands import plugins

from tests.support.artifacts import MakeArtifact
from tests.support.hub_server import TOKEN, Hub
from tests.support.server_process import Server

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


def peltier(hub: Hub, *arguments: str | Path, xet: bool = False) -> "subprocess.CompletedProcess[str]":
    """Runs a command with the hub's address and a token in the environment."""
    own = {"HF_ENDPOINT": hub.endpoint, "HF_HUB_DISABLE_XET": str(int(not xet)), "HF_TOKEN": TOKEN}
    environment = {**os.environ, **own}
    command = [sys.executable, "-c", PROGRAM, *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, env=environment)


@pytest.fixture
def pull_here(hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Peltier:
    """`peltier pull` in this process."""
    entry = EntryPoint("pull", "peltier_store.sources.commands:pull", "peltier.commands")
    monkeypatch.setattr(plugins, "entry_points", lambda group: [entry])
    monkeypatch.setenv("HF_TOKEN", TOKEN)

    def call(*words: str | Path) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["peltier", "pull", *map(str, words)])
        capsys.readouterr()
        status = 0
        try:
            cli.main()
        except SystemExit as end:
            status = int(end.code or 0)
        return status, *capsys.readouterr()

    return call


@pytest.mark.slow
def test_what_is_pushed_is_pulled_again(hub: Hub, tmp_path: Path, bert: Backbone, make_artifact: MakeArtifact) -> None:
    """Bit by bit, from a private repository; the token is nowhere in the output."""
    artifact, mirror = tmp_path / "demo.safetensors", tmp_path / "mirror"
    artifact.write_bytes(make_artifact(bert))
    pushed = peltier(hub, "push", artifact, "hf://acme/demo@v1", "--private", "--json")
    assert pushed.returncode == 0, pushed.stderr
    commit = json.loads(pushed.stdout)["commit"]
    pulled = peltier(hub, "pull", "hf://acme/demo@v1", "--output", mirror, "--backbone", bert.name, "--json")
    assert pulled.returncode == 0, pulled.stderr
    (unit,) = json.loads(pulled.stdout)["pulled"]
    assert (unit["version"], unit["state"], unit["files"]) == (commit, "new", ["demo.safetensors"])
    assert (mirror / "demo.safetensors").read_bytes() == artifact.read_bytes()
    assert TOKEN not in pushed.stdout + pushed.stderr + pulled.stdout + pulled.stderr


def test_a_hub_without_xet_gets_the_artifact_by_http(
    hub: Hub, tmp_path: Path, bert: Backbone, make_artifact: MakeArtifact
) -> None:
    """huggingface_hub itself would only try xet, because hf_xet is installed."""
    pytest.importorskip("hf_xet", reason="hf_xet has no build for this machine")
    artifact = tmp_path / "demo.safetensors"
    artifact.write_bytes(make_artifact(bert))
    pushed = peltier(hub, "push", artifact, "hf://acme/demo", "--json", xet=True)
    assert pushed.returncode == 0, pushed.stderr
    assert [path for _, path, _ in hub.requests if "xet-write-token" in path]
    found = hub.repositories["acme/demo"].commits[json.loads(pushed.stdout)["commit"]]
    assert found["demo.safetensors"] == artifact.read_bytes()
    assert "README.md" in found


def test_what_is_pulled_is_published(
    hub: Hub, tmp_path: Path, bert: Backbone, make_artifact: MakeArtifact, pull_here: Peltier
) -> None:
    """A collection with `--upload`: what the server does not have becomes a version, and nothing becomes one twice."""
    artifacts = {name: make_artifact(bert, name=name) for name in ("intents", "moods")}
    for name, data in artifacts.items():
        hub.add(f"acme/{name}", {f"{name}.safetensors": data})
    hub.collections["acme/tasks"] = [("model", f"acme/{name}") for name in artifacts]
    server = Server(tmp_path / "log", "--backbone", bert.name, "--store", str(tmp_path / "store")).wait_until_ready()
    try:
        flags = ("--output", tmp_path / "mirror", "--backbone", bert.name, "--upload", "--url", server.url, "--json")

        def published() -> list[str]:
            status, output, error = pull_here("hf://collections/acme/tasks", *flags)
            assert status == 0, error
            found: list[str] = json.loads(output)["published"]
            return found

        assert published() == published() == ["intents@1", "moods@1"]
        artifact = server.client.get("/v1/adapters/intents/versions/1/artifact")
        assert artifact.content == artifacts["intents"]
        hub.add("acme/intents", {"intents.safetensors": make_artifact(bert, name="intents", seed=1)})
        assert published() == ["intents@2", "moods@1"]
    finally:
        server.end()


def test_what_is_refused_sets_the_exit_status(hub: Hub, tmp_path: Path, bert: Backbone, pull_here: Peltier) -> None:
    """1 with the reason for a repository that is refused, and for a source that is none."""
    hub.add("acme/bad", {"bad.safetensors": b"no artifact"})
    status, output, error = pull_here("hf://acme/bad", "--output", tmp_path / "mirror", "--backbone", bert.name)
    assert (status, error) == (1, "")
    assert output.startswith("refused hf://acme/bad: the header claims")
    status, _, error = pull_here("hf://acme", "--output", tmp_path / "mirror")
    assert status == 1
    assert error.startswith("error: the source 'hf://acme' is not of the form")
    assert len(error.splitlines()) == 1
