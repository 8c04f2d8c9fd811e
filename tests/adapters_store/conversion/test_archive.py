"""Zips, unpacked within bounds."""

import shutil
import stat
import zipfile
from pathlib import Path

import pytest
from peltier_adapters.conversion.archive import ArchiveBounds, check_room, unpack
from peltier_backbone.errors import BackboneError


def _zip(path: Path, files: dict[str, bytes], links: dict[str, str] | None = None) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in files.items():
            archive.writestr(name, data)
        for name, target in (links or {}).items():
            entry = zipfile.ZipInfo(name)
            entry.create_system, entry.external_attr = 3, (stat.S_IFLNK | 0o777) << 16
            archive.writestr(entry, target)
    return path


def test_files_and_links_between_them_are_unpacked(tmp_path: Path) -> None:
    """As in a hub cache that a zip keeps with its links."""
    path = _zip(tmp_path / "a.zip", {"m/blobs/1": b"one"}, {"m/snapshots/r/config.json": "../../blobs/1"})
    unpack(path, tmp_path / "new")
    assert (tmp_path / "new/m/snapshots/r/config.json").read_bytes() == b"one"


@pytest.mark.parametrize("name", ["../evil", "/evil", "a/../../evil", "a\\..\\evil"])
def test_a_path_outside_is_refused(name: str, tmp_path: Path) -> None:
    """Before anything is written."""
    path = _zip(tmp_path / "a.zip", {"config.json": b"{}", name: b"x"})
    with pytest.raises(BackboneError, match=r"the entry .* is a path outside of the zip"):
        unpack(path, tmp_path / "new")
    assert [one.name for one in tmp_path.iterdir()] == ["a.zip"]


@pytest.mark.parametrize("target", ["/etc/passwd", "../secret", "missing", "folder", "other"])
def test_a_link_leads_to_a_file_of_the_zip(target: str, tmp_path: Path) -> None:
    """Not outside, not to nothing, to no directory and to no other link."""
    (tmp_path / "secret").write_text("a")
    path = _zip(tmp_path / "a.zip", {"folder/file": b"x"}, {"other": "folder/file", "vocab.txt": target})
    with pytest.raises(BackboneError, match=rf"the link 'vocab.txt' leads to '{target}', which is no file of the zip"):
        unpack(path, tmp_path / "new")


def test_bounds_hold_before_anything_is_unpacked(tmp_path: Path) -> None:
    """Of files, and of bytes as they are on the disk, however well they are compressed."""
    path = _zip(tmp_path / "a.zip", {"a": bytes(100_000), "b": b""})
    with pytest.raises(BackboneError, match="has 2 files; at most 1 are unpacked"):
        unpack(path, tmp_path / "new", ArchiveBounds(files=1))
    with pytest.raises(BackboneError, match="has 100,000 bytes when unpacked; at most 99,999 are unpacked"):
        unpack(path, tmp_path / "new", ArchiveBounds(bytes=99_999))
    assert not (tmp_path / "new").exists()


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_two_entries_with_one_path_are_refused(tmp_path: Path) -> None:
    """Readers of zips differ in which one they take."""
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("config.json", "1")
        archive.writestr("config.json", "2")
    with pytest.raises(BackboneError, match="cannot be unpacked: two entries have the path"):
        unpack(tmp_path / "a.zip", tmp_path / "new")


def test_a_damaged_zip_is_refused(tmp_path: Path) -> None:
    """Its checksums tell."""
    path = _zip(tmp_path / "a.zip", {"config.json": bytes(range(256)) * 8})
    data = bytearray(path.read_bytes())
    data[60] ^= 255
    path.write_bytes(data)
    with pytest.raises(BackboneError, match=r"a\.zip cannot be unpacked"):
        unpack(path, tmp_path / "new")


def test_what_does_not_fit_on_the_disk_is_refused(tmp_path: Path) -> None:
    """With both numbers."""
    with pytest.raises(BackboneError, match=r"has no room: [\d,]+ bytes are needed, and [\d,]+ are free"):
        check_room(tmp_path, shutil.disk_usage(tmp_path).total + 1)
