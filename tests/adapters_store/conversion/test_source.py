"""Where a checkpoint lies."""

from pathlib import Path

import pytest
from peltier_adapters.conversion.source import copy_companions, find_snapshot, find_unpacked
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


def test_an_unpacked_zip_may_have_a_folder_around(cache: Path) -> None:
    """A zip of a directory usually has."""
    assert find_unpacked(cache.parent) == find_unpacked(cache) == cache / "snapshots" / REVISION


@pytest.mark.parametrize("revision", ["", "..", "a/b", "/etc", "../../x"])
def test_a_revision_is_a_name_in_snapshots(revision: str, cache: Path) -> None:
    """A reference leads nowhere else."""
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
    with pytest.raises(BackboneError, match="is no checkpoint: it is neither a directory nor a zip"):
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


def test_a_link_to_nothing_is_refused(tmp_path: Path) -> None:
    """As in a hub cache whose download was interrupted."""
    (tmp_path / "old").mkdir()
    (tmp_path / "new").mkdir()
    (tmp_path / "old/tokenizer.json").symlink_to("missing")
    with pytest.raises(BackboneError, match=r"tokenizer\.json is a link to a file that is not there"):
        copy_companions(tmp_path / "old", tmp_path / "new")
