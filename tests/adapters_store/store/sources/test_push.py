"""Pushes to a hub on loopback."""

from collections.abc import Callable
from pathlib import Path

import peltier
import pytest
from huggingface_hub import ModelCard
from peltier_adapters.errors import AdapterError
from peltier_adapters.hub.address import HubRepository
from peltier_backbone.backbone import Backbone
from peltier_store.sources.push import PushOptions, push_artifact

from tests.support.hub_server import TOKEN, Hub

# Of huggingface_hub, which passes files to httpx2 by an old name.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=:DeprecationWarning")


@pytest.fixture
def artifact(tmp_path: Path, bert: Backbone, make_artifact: Callable[..., bytes]) -> Path:
    """A small one."""
    path = tmp_path / "own-name.safetensors"
    path.write_bytes(make_artifact(bert))
    return path


def test_a_repository_gets_the_artifact_and_its_card(hub: Hub, artifact: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One commit of both; the address that is returned names it."""
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    pushed = push_artifact(artifact, HubRepository("acme/demo"), PushOptions(private=True))
    repository = hub.repositories["acme/demo"]
    assert repository.is_private
    assert pushed == HubRepository("acme/demo", repository.branches["main"])
    files = repository.commits[repository.branches["main"]]
    assert files["demo.safetensors"] == artifact.read_bytes()
    assert ModelCard(files["README.md"].decode()).data.library_name == "peltier"


def test_an_adapter_in_python_is_pushed_with_its_card(hub, artifact, bert, monkeypatch):
    """As its file would be."""
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    address = peltier.load(artifact, backbone=bert.name, device="cpu").push("hf://acme/demo", private=True)
    repository = hub.repositories["acme/demo"]
    assert repository.is_private
    assert address == f"hf://acme/demo@{repository.branches['main']}"
    files = repository.commits[repository.branches["main"]]
    assert files["demo.safetensors"] == artifact.read_bytes()
    assert "README.md" in files


def test_a_branch_is_made_and_a_card_is_left_alone(hub: Hub, artifact: Path) -> None:
    """Other branches stay as they are; without the card a README.md of the repository stays too."""
    main = hub.add("acme/demo", {"README.md": b"by hand"})
    push_artifact(artifact, HubRepository("acme/demo", "v2"), PushOptions(card=False))
    branches = hub.repositories["acme/demo"].branches
    assert branches["main"] == main
    assert hub.repositories["acme/demo"].commits[branches["v2"]]["README.md"] == b"by hand"


def test_what_cannot_be_pushed_is_refused_before_the_hub_is_asked(hub: Hub, artifact: Path) -> None:
    """A commit is no branch, and only an artifact is pushed."""
    with pytest.raises(AdapterError, match="names a commit; push to a branch"):
        push_artifact(artifact, HubRepository("acme/demo", "0123456"), PushOptions())
    artifact.write_bytes(b"no artifact")
    with pytest.raises(AdapterError, match="not a safetensors file"):
        push_artifact(artifact, HubRepository("acme/demo"), PushOptions())
    assert hub.requests == []
