"""Pulls from the hub and from buckets."""

import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from peltier_adapters.artifact.artifact import load_artifact
from peltier_backbone.backbone import Backbone
from peltier_store.blobs.errors import BlobError
from peltier_store.blobs.location import locate
from peltier_store.sources import pull as pulling
from peltier_store.sources.artifact_files import SourceFile
from peltier_store.sources.pull import Pulled, State
from safetensors.torch import save

Pull = Callable[[str], list[Pulled]]


@pytest.fixture
def pull(bert: Backbone, tmp_path: Path) -> Pull:
    """Pulls a source into `tmp_path / "pulled"`."""
    return lambda source: list(pulling.pull(source, tmp_path / "pulled", lambda: bert))


def test_a_repository_is_pulled_by_its_changes(hub, pull, bert, make_artifact, tmp_path):
    """A second pull downloads nothing; a new commit replaces the file, and so does a pull of a damaged one."""
    path = tmp_path / "pulled" / "a.safetensors"
    for seed in (0, 1):
        data = make_artifact(bert, name="a", seed=seed)
        commit = hub.add("acme/a", {"a.safetensors": data})
        state: State = "changed" if seed else "new"
        assert pull("hf://acme/a") == [Pulled(f"hf://acme/a@{commit}/a.safetensors", state, str(path))]
        hub.requests.clear()
        assert [one.state for one in pull("hf://acme/a")] == ["unchanged"]
        assert hub.downloads() == []
        assert path.read_bytes() == data
    path.write_bytes(b"damaged")
    assert [one.state for one in pull("hf://acme/a")] == ["changed"]
    assert path.read_bytes() == data


def test_one_file_that_is_refused_stops_no_other(hub, pull, bert, make_artifact, tmp_path):
    """Bad bytes, wrong golden outputs and a second adapter of a name are refused with the reason, and not written."""
    good = make_artifact(bert, name="good")
    files = {
        "a.safetensors": b"no artifact",
        "moved.safetensors": with_other_weights(make_artifact(bert, name="moved")),
    }
    hub.add("acme/x", {**files, "b.safetensors": good, "c.safetensors": make_artifact(bert, name="good", seed=1)})
    found = {one.address.rpartition("/")[2]: one for one in pull("hf://acme/x")}
    assert "not a safetensors file" in found["a.safetensors"].reason
    assert "golden example 0: scores differ" in found["moved.safetensors"].reason
    assert found["b.safetensors"].state == "new"
    assert f"has the name of {found['b.safetensors'].address}" in found["c.safetensors"].reason
    assert {path.name: path.read_bytes() for path in (tmp_path / "pulled").iterdir()} == {"good.safetensors": good}


def with_other_weights(data: bytes) -> bytes:
    """The artifact with the last tensor's last values replaced."""
    return data[:-64] + struct.pack("<16f", *[3.0] * 16)


def test_a_repository_of_peft_is_imported(hub, pull, bert, save_peft, tmp_path):
    """It becomes an artifact that names the commit it is from; pickles are never downloaded."""
    files = {path.name: path.read_bytes() for path in save_peft().iterdir()}
    commit = hub.add("acme/Intents", {**files, "optimizer.bin": b"pickle"})
    assert [one.state for one in pull("hf://acme/Intents@main")] == ["new"]
    manifest = load_artifact(tmp_path / "pulled" / "intents.safetensors", bert).manifest
    assert manifest.training.data["imported"]["source"] == f"hf://acme/Intents@{commit}"
    hub.add("acme/old", {"adapter_config.json": files["adapter_config.json"], "adapter_model.bin": b"pickle"})
    assert "weights are downloaded as safetensors only" in pull("hf://acme/old")[0].reason
    assert not [path for path in hub.downloads() if path.endswith(".bin")]


def test_a_repository_of_adapterhub_is_imported(hub, pull, bert, save_adapterhub, tmp_path):
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
    assert [one.state for one in pull("hf://acme/Intents@main")] == ["new"]
    artifact = load_artifact(tmp_path / "pulled" / "intents.safetensors", bert)
    assert artifact.manifest.task.labels == ("no", "yes")
    assert artifact.manifest.training.data["imported"]["source"] == f"hf://acme/Intents@{commit}"
    assert [part.kind for part in artifact.manifest.parts] == ["lora", "head"]


def test_objects_of_a_bucket_are_pulled(s3_store, pull, bert, make_artifact, tmp_path):
    """Over the real S3 protocol; other objects are left out."""
    store = locate(s3_store).store
    for name in ("a", "b"):
        store.put(f"{name}.safetensors", make_artifact(bert, name=name))
    store.put("notes.txt", b"text")
    assert [one.state for one in pull(s3_store)] == ["new", "new"]
    store.put("a.safetensors", make_artifact(bert, name="a", seed=1))
    assert [one.state for one in pull(s3_store)] == ["changed", "unchanged"]
    assert {path.name for path in (tmp_path / "pulled").iterdir()} == {"a.safetensors", "b.safetensors"}


def test_a_source_that_fails_ends_the_pull(pull: Pull, monkeypatch: pytest.MonkeyPatch) -> None:
    """Other files would only wait for it again."""

    def fail() -> bytes:
        raise BlobError("s3://b/a.safetensors cannot be read: timed out")

    files = [SourceFile(name, 1, fail) for name in "ab"]
    monkeypatch.setattr(pulling, "find_artifacts", lambda source: files)
    with pytest.raises(BlobError, match="timed out"):
        pull("s3://b")
