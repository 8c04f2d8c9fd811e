"""The files of a checkpoint."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from peltier_adapters.conversion.checkpoint_files import (
    check_files,
    copy_companions,
    find_module_weights,
    find_snapshot,
    find_weights,
)
from peltier_backbone.errors import BackboneError

REVISION = "0a1b2c3d"
COPIED = (
    *("config.json", "generation_config.json", "tokenizer.json", "vocab.txt", "merges.txt", "spiece.model"),
    *("chat_template.jinja", "LICENSE", "README.md", "1_Pooling/config.json"),
)
LEFT = ("model.safetensors.index.json", "pytorch_model.bin", "modeling.py", "tf_model.h5", ".gitattributes", "a/b.json")


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A model in the hub's cache, with two revisions."""
    cache = tmp_path / "models--acme--encoder"
    for revision in (REVISION, "ffff"):
        snapshot = cache / "snapshots" / revision
        snapshot.mkdir(parents=True)
        (snapshot / "config.json").write_text("{}")
    (cache / "refs").mkdir()
    (cache / "refs" / "main").write_text(f"{REVISION}\n")
    return cache


def test_a_hub_cache_has_the_revision_of_main(cache: Path) -> None:
    """One of its snapshots is a checkpoint as it is."""
    assert find_snapshot(cache) == cache / "snapshots" / REVISION
    assert find_snapshot(cache / "snapshots" / "ffff") == cache / "snapshots" / "ffff"


@pytest.mark.parametrize("revision", ["", "..", "a/b", "/etc", "../../x"])
def test_a_revision_is_a_name_in_snapshots(revision: str, cache: Path) -> None:
    (cache / "refs" / "main").write_text(revision)
    with pytest.raises(BackboneError, match="which is no revision"):
        find_snapshot(cache)


def test_a_cache_without_the_revision_is_refused(cache: Path) -> None:
    """By what is missing: the reference, or the snapshot."""
    (cache / "refs" / "main").write_text("eeee")
    with pytest.raises(BackboneError, match=r"the revision eeee of refs/main has no config\.json in snapshots"):
        find_snapshot(cache)
    (cache / "refs" / "main").unlink()
    with pytest.raises(BackboneError, match="is a hub cache without refs/main; name one of its snapshots"):
        find_snapshot(cache)


def test_other_paths_are_refused(tmp_path: Path) -> None:
    """A directory without a configuration, and nothing at all."""
    with pytest.raises(BackboneError, match=r"it has no config\.json"):
        find_snapshot(tmp_path)
    with pytest.raises(BackboneError, match="is no checkpoint: it is not a directory"):
        find_snapshot(tmp_path / "nowhere")


def test_what_readers_need_is_copied_and_no_weights_or_code(tmp_path: Path) -> None:
    """Through links, as files."""
    old, new, blob = tmp_path / "old", tmp_path / "new", tmp_path / "blob"
    new.mkdir()
    blob.write_text("content")
    for name in (*COPIED, *LEFT):
        (old / name).parent.mkdir(exist_ok=True, parents=True)
        (old / name).symlink_to(blob)
    assert copy_companions(old, new) == len(COPIED)
    copies = {path.relative_to(new).as_posix(): path for path in new.rglob("*") if path.is_file()}
    assert copies.keys() == set(COPIED)
    assert not any(path.is_symlink() for path in copies.values())


def test_a_link_leads_to_no_file_outside(tmp_path: Path) -> None:
    """Neither of a file, nor of a folder of it, nor of the snapshot of a cache; one of the checkpoint's own is read."""
    directory, outside = tmp_path / "checkpoint", tmp_path / "outside"
    _touch(tmp_path, "outside/vocab.txt", "checkpoint/a.txt")
    (directory / "vocab.txt").symlink_to("a.txt")
    check_files(directory, directory)
    for name in ("b.txt", "model.safetensors", "1_Pooling"):
        (directory / name).symlink_to(outside if name == "1_Pooling" else outside / "vocab.txt")
        with pytest.raises(BackboneError, match=f"^{directory / name} is a link out of {directory}; copy what"):
            check_files(directory, directory)
        (directory / name).unlink()
    (tmp_path / "snapshot").symlink_to(outside)
    with pytest.raises(BackboneError, match=f"snapshot is a link out of {directory}"):
        check_files(tmp_path / "snapshot", directory)


def test_a_snapshot_is_read_through_the_links_of_its_cache(cache: Path, tmp_path: Path) -> None:
    """Also those that repositories share, not through links to another repository, and from no folder but a cache."""
    _touch(cache, "blobs/1")
    _touch(tmp_path, "models--other/1")
    snapshot = cache / "snapshots" / REVISION
    (snapshot / "vocab.txt").symlink_to("../../blobs/1")
    _touch(tmp_path, "blobs/0f/0f1e")
    (cache / "blobs/2").symlink_to("../../blobs/0f/0f1e")
    (snapshot / "model.safetensors").symlink_to("../../blobs/2")
    for given in (cache, snapshot):
        check_files(snapshot, given)
    (snapshot / "merges.txt").symlink_to("../../../models--other/1")
    for given in (cache, snapshot):
        with pytest.raises(BackboneError, match=f"merges.txt is a link out of {cache};"):
            check_files(snapshot, given)
    (snapshot / "merges.txt").unlink()
    renamed = cache.rename(tmp_path / "encoder") / "snapshots" / REVISION
    with pytest.raises(BackboneError, match=r"(model\.safetensors|vocab\.txt) is a link out of"):
        check_files(renamed, renamed)


@pytest.mark.parametrize("kind", ["models", "datasets", "spaces"])
def test_a_folder_of_a_snapshot_is_read_through_the_links_of_its_cache(kind: str, tmp_path: Path) -> None:
    """At any depth, of any kind of repository; and no link leaves the cache."""
    cache = tmp_path / f"{kind}--acme--encoder"
    _touch(cache, "blobs/1", f"snapshots/{REVISION}/a/b/config.json")
    directory = cache / "snapshots" / REVISION / "a/b"
    (directory / "vocab.txt").symlink_to("../../../../blobs/1")
    check_files(directory, directory)
    _touch(tmp_path, "outside")
    (directory / "merges.txt").symlink_to(tmp_path / "outside")
    with pytest.raises(BackboneError, match=f"merges.txt is a link out of {cache};"):
        check_files(directory, directory)


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    """A link to nothing, as in a cache whose download was interrupted; what never ends; and what is huge."""
    (tmp_path / "tokenizer.json").symlink_to("missing")
    with pytest.raises(BackboneError, match=r"tokenizer\.json is a link to a file that is not there"):
        check_files(tmp_path, tmp_path)
    (tmp_path / "tokenizer.json").unlink()
    os.mkfifo(tmp_path / "config.json")
    with pytest.raises(BackboneError, match=r"config\.json is neither a file nor a directory"):
        check_files(tmp_path, tmp_path)
    (tmp_path / "config.json").unlink()
    for name in ("vocab.txt", "model.safetensors.index.json", "LICENSE", "1_Pooling/config.json"):
        _touch(tmp_path, name, "model.safetensors")
        os.truncate(tmp_path / name, 256 * 1024**2 + 1)
        with pytest.raises(BackboneError, match=f"{name} has 268,435,457 bytes; at most 268,435,456 are read"):
            check_files(tmp_path, tmp_path)
        (tmp_path / name).unlink()
    os.truncate(tmp_path / "model.safetensors", 2**40)
    check_files(tmp_path, tmp_path)


def _touch(folder: Path, *names: str) -> None:
    for name in names:
        (folder / name).parent.mkdir(exist_ok=True, parents=True)
        (folder / name).write_bytes(b"1234")


def _index(folder: Path, weight_map: Any) -> None:
    (folder / "pytorch_model.bin.index.json").write_text(json.dumps({"weight_map": weight_map}))


def test_safetensors_come_before_pickles(tmp_path: Path) -> None:
    """A repository that has both has the same weights twice."""
    _touch(tmp_path, "pytorch_model.bin")
    (pickled,) = find_weights(tmp_path).files
    assert (pickled.source.name, pickled.target) == ("pytorch_model.bin", "model.safetensors")
    _touch(tmp_path, "model.safetensors")
    assert [file.source.name for file in find_weights(tmp_path).files] == ["model.safetensors"]


def test_shards_keep_their_names(tmp_path: Path) -> None:
    """Except for the suffix and the name of torch."""
    names = ["pytorch_model-00001-of-00002.bin", "pytorch_model-00002-of-00002.bin"]
    _touch(tmp_path, *names)
    _index(tmp_path, {"a": names[1], "b": names[0], "c": names[0]})
    found = find_weights(tmp_path)
    assert [file.target for file in found.files] == [f"model-0000{i}-of-00002.safetensors" for i in (1, 2)]
    assert found.index is not None
    assert found.index["a"] == "model-00002-of-00002.safetensors"
    assert found.num_bytes == 8


@pytest.mark.parametrize("name", ["../a.bin", "/etc/a.bin", "a.pkl", 3, "x/a.bin"])
def test_a_shard_is_a_file_beside_its_index(name: object, tmp_path: Path) -> None:
    _index(tmp_path, {"a": name})
    with pytest.raises(BackboneError, match=r"a shard is a \.bin or \.safetensors file beside it"):
        find_weights(tmp_path)


@pytest.mark.parametrize("weight_map", [None, [], {}, "a"])
def test_an_index_has_a_map(weight_map: object, tmp_path: Path) -> None:
    _index(tmp_path, weight_map)
    with pytest.raises(BackboneError, match="is not a readable shard index"):
        find_weights(tmp_path)


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(BackboneError, match=r"has no weights: none of model\.safetensors, pytorch_model\.bin"):
        find_weights(tmp_path)
    _index(tmp_path, {"a": "x-1.bin"})
    with pytest.raises(BackboneError, match=r"names shards that are not there: x-1\.bin"):
        find_weights(tmp_path)


def test_modules_of_sentence_transformers_have_weights_too(tmp_path: Path) -> None:
    """Those of their folders, of either format."""
    _touch(tmp_path, "2_Dense/pytorch_model.bin", "1_Pooling/config.json")
    (found,) = find_module_weights(tmp_path)
    assert (found.source, found.target) == (tmp_path / "2_Dense/pytorch_model.bin", "2_Dense/model.safetensors")
