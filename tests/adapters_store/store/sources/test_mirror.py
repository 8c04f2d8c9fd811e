"""A directory that mirrors the hub and buckets."""

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from obstore.store import S3Store
from peltier_adapters.artifact.artifact import load_artifact
from peltier_adapters.errors import AdapterError
from peltier_backbone.backbone import Backbone
from peltier_store.blobs.location import locate
from peltier_store.sources.mirror import RECORD, Mirror, Pulled
from safetensors.torch import save

from tests.adapters_store.importers.conftest import SaveAdapterHub, SavePeft
from tests.support.artifacts import MakeArtifact
from tests.support.hub_server import Hub

COLLECTION = "hf://collections/acme/tasks"
Pull = Callable[[str], list[Pulled]]


@pytest.fixture
def pull(bert: Backbone, tmp_path: Path) -> Pull:
    """Pulls a source into `tmp_path / "mirror"`, each time by a new mirror."""
    return lambda source: list(Mirror(tmp_path / "mirror", lambda: bert).pull(source))


def states(pulled: list[Pulled]) -> dict[str, str]:
    return {one.address.removeprefix("hf://"): one.state for one in pulled}


def test_a_collection_is_mirrored_by_its_changes(
    hub: Hub, pull: Pull, bert: Backbone, make_artifact: MakeArtifact, tmp_path: Path
) -> None:
    """A second pull downloads nothing; a new commit replaces the file, and what has left the collection is removed."""
    commits = [hub.add(f"acme/{name}", {f"{name}.safetensors": make_artifact(bert, name=name)}) for name in "ab"]
    hub.collections["acme/tasks"] = [("model", "acme/a"), ("model", "acme/b")]
    first = pull(COLLECTION)
    assert states(first) == {"acme/a": "new", "acme/b": "new"}
    assert [one.version for one in first] == commits
    assert (tmp_path / "mirror" / "a.safetensors").read_bytes() == make_artifact(bert, name="a")
    hub.requests.clear()
    assert states(pull(COLLECTION)) == {"acme/a": "unchanged", "acme/b": "unchanged"}
    assert hub.downloads() == []
    hub.add("acme/a", {"a.safetensors": make_artifact(bert, name="a", seed=1)})
    hub.collections["acme/tasks"].pop()
    assert states(pull(COLLECTION)) == {"acme/a": "changed", "acme/b": "removed"}
    assert {path.name for path in (tmp_path / "mirror").iterdir()} == {"a.safetensors", RECORD}
    assert (tmp_path / "mirror" / "a.safetensors").read_bytes() == make_artifact(bert, name="a", seed=1)


def test_one_repository_that_is_refused_stops_no_other(
    hub: Hub, pull: Pull, bert: Backbone, make_artifact: MakeArtifact, tmp_path: Path
) -> None:
    """Bad bytes, wrong golden outputs and a missing repository are refused with the reason. A file that was pulled
    before stays."""
    good = make_artifact(bert, name="good")
    hub.add("acme/good", {"good.safetensors": good})
    hub.collections["acme/tasks"] = [("model", f"acme/{name}") for name in ("bad", "moved", "gone", "good")]
    hub.add("acme/bad", {"bad.safetensors": b"no artifact"})
    hub.add("acme/moved", {"moved.safetensors": with_other_weights(make_artifact(bert, name="moved"))})
    found = {one.address: one for one in pull(COLLECTION)}
    assert found["hf://acme/good"].state == "new"
    assert "not a safetensors file" in found["hf://acme/bad"].reason
    assert "golden example 0: scores differ" in found["hf://acme/moved"].reason
    assert "404" in found["hf://acme/gone"].reason or "401" in found["hf://acme/gone"].reason
    hub.add("acme/good", {"good.safetensors": b"no artifact any more"})
    assert states(pull(COLLECTION))["acme/good"] == "refused"
    assert (tmp_path / "mirror" / "good.safetensors").read_bytes() == good


def with_other_weights(data: bytes) -> bytes:
    """The artifact with the last tensor's last values replaced."""
    return data[:-64] + struct.pack("<16f", *[3.0] * 16)


def test_files_belong_to_one_repository(
    hub: Hub, pull: Pull, bert: Backbone, make_artifact: MakeArtifact, tmp_path: Path
) -> None:
    """Two adapters of one name are not mixed up, and a file of the user is not replaced."""
    for name in ("a", "b"):
        hub.add(f"acme/{name}", {"x.safetensors": make_artifact(bert, name="same", seed=ord(name))})
    hub.collections["acme/tasks"] = [("model", "acme/a"), ("model", "acme/b")]
    found = pull(COLLECTION)
    assert (
        found[1].reason
        == "hf://acme/b has an adapter of the file same.safetensors, which is already that of hf://acme/a"
    )
    (tmp_path / "mirror" / "own.safetensors").write_bytes(b"own")
    hub.add("acme/own", {"own.safetensors": make_artifact(bert, name="own")})
    assert "exists and is not of a source" in pull("hf://acme/own")[0].reason
    assert (tmp_path / "mirror" / "own.safetensors").read_bytes() == b"own"


def test_a_repository_of_peft_is_imported(
    hub: Hub,
    pull: Pull,
    bert: Backbone,
    save_peft: SavePeft,
    tmp_path: Path,
) -> None:
    """It becomes an artifact that names the commit it is from; pickles are never downloaded."""
    files = {path.name: path.read_bytes() for path in save_peft().iterdir()}
    commit = hub.add("acme/Intents", {**files, "optimizer.bin": b"pickle"})
    assert states(pull("hf://acme/Intents@main")) == {"acme/Intents@main": "new"}
    manifest = load_artifact(tmp_path / "mirror" / "intents.safetensors", bert).manifest
    assert manifest.training.data["imported"]["source"] == f"hf://acme/Intents@{commit}"
    hub.add("acme/old", {"adapter_config.json": files["adapter_config.json"], "adapter_model.bin": b"pickle"})
    assert "weights are downloaded as safetensors only" in pull("hf://acme/old")[0].reason
    assert not [path for path in hub.downloads() if path.endswith(".bin")]


def test_a_repository_of_adapterhub_is_imported(
    hub: Hub, pull: Pull, bert: Backbone, save_adapterhub: SaveAdapterHub, tmp_path: Path
) -> None:
    """With the labels of its head, whose weights are beside the adapter's."""
    folder, hidden = save_adapterhub(), bert.config.hidden_size
    weights = {
        "adapter.safetensors": torch.load(folder / "pytorch_adapter.bin"),
        "model_head.safetensors": {"classifier.weight": torch.ones(2, hidden), "classifier.bias": torch.zeros(2)},
    }
    head = {"name": "intents", "num_labels": 2, "label2id": {"no": 0, "yes": 1}}
    files = {name: save(tensors) for name, tensors in weights.items()}
    files |= {"adapter_config.json": (folder / "adapter_config.json").read_bytes()}
    commit = hub.add("acme/Intents", {**files, "head_config.json": json.dumps(head).encode()})
    assert states(pull("hf://acme/Intents@main")) == {"acme/Intents@main": "new"}
    artifact = load_artifact(tmp_path / "mirror" / "intents.safetensors", bert)
    assert artifact.manifest.task.labels == ("no", "yes")
    assert artifact.manifest.training.data["imported"]["source"] == f"hf://acme/Intents@{commit}"
    assert [part.kind for part in artifact.manifest.parts] == ["lora", "head"]


def test_objects_of_a_bucket_are_mirrored(
    s3_store: str, pull: Pull, bert: Backbone, make_artifact: MakeArtifact, tmp_path: Path
) -> None:
    """By their entity tags, over the real S3 protocol; other objects are left out."""
    store = locate(s3_store).store
    assert isinstance(store, S3Store)
    for name in ("a", "b"):
        store.put(f"{name}.safetensors", make_artifact(bert, name=name))
    store.put("notes.txt", b"text")
    assert [one.state for one in pull(s3_store)] == ["new", "new"]
    store.put("a.safetensors", make_artifact(bert, name="a", seed=1))
    store.delete("b.safetensors")
    assert [one.state for one in pull(s3_store)] == ["changed", "removed"]
    assert {path.name for path in (tmp_path / "mirror").iterdir()} == {"a.safetensors", RECORD}


@pytest.mark.parametrize(
    "text", ["[]", "{", '{"units": {"x": {"source": "s", "version": "1", "files": {"../x": ""}}}}']
)
def test_a_record_that_is_none_is_refused(text: str, tmp_path: Path, bert: Backbone) -> None:
    """Also one with a file outside of the folder."""
    (tmp_path / RECORD).write_text(text)
    with pytest.raises(AdapterError, match="is not the record of a mirror"):
        Mirror(tmp_path, lambda: bert)


def test_a_damaged_file_is_pulled_again(
    hub: Hub, pull: Pull, bert: Backbone, make_artifact: MakeArtifact, tmp_path: Path
) -> None:
    """Also if the commit is that of the record."""
    hub.add("acme/a", {"a.safetensors": make_artifact(bert, name="a")})
    pull("hf://acme/a")
    path = tmp_path / "mirror" / "a.safetensors"
    path.write_bytes(b"damaged")
    assert [one.state for one in pull("hf://acme/a")] == ["changed"]
    assert path.read_bytes() == make_artifact(bert, name="a")
    assert json.loads((tmp_path / "mirror" / RECORD).read_text())["units"].keys() == {"hf://acme/a"}
