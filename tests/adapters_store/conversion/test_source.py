"""Where a checkpoint lies."""

from pathlib import Path

import pytest
from peltier_adapters.conversion.source import find_snapshot, find_unpacked
from peltier_backbone.errors import BackboneError

REVISION = "0a1b2c3d"


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
