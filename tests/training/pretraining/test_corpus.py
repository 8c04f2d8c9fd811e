"""Text files as documents."""

import gzip
import lzma
from pathlib import Path

import pytest
from peltier_training.errors import TrainingError
from peltier_training.pretraining.corpus import check_files, documents, is_held_out

TEXT = "\n\none\ntwo\n \n\nthree é\n"


def test_plain_and_compressed_are_alike(tmp_path: Path):
    """Blank lines part documents; .gz and .xz are opened by their names."""
    (tmp_path / "a.txt").write_text(TEXT, encoding="utf-8")
    (tmp_path / "b.txt.gz").write_bytes(gzip.compress(TEXT.encode(), mtime=0))
    (tmp_path / "c.txt.xz").write_bytes(lzma.compress(TEXT.encode()))
    for name in ("a.txt", "b.txt.gz", "c.txt.xz"):
        assert list(documents([tmp_path / name])) == ["one\ntwo", "three é"]
    assert len(list(documents([tmp_path / "a.txt", tmp_path / "b.txt.gz"]))) == 4


@pytest.mark.parametrize(
    ("name", "data", "reason"),
    [
        ("a.txt", b"caf\xe9", "a.txt cannot be read: it is not UTF-8"),
        ("a.txt.xz", b"no xz", "a.txt.xz cannot be read: Input format not supported by decoder"),
        ("a.txt.xz", lzma.compress(TEXT.encode())[:-20], "a.txt.xz cannot be read: Compressed file ended before"),
        ("a.txt.gz", b"no gzip", "a.txt.gz cannot be read: Not a gzipped file"),
        (
            "a.txt.gz",
            gzip.compress(TEXT.encode(), mtime=0)[:-9],
            "a.txt.gz cannot be read: Compressed file ended before",
        ),
    ],
)
def test_an_unreadable_file_is_named(tmp_path: Path, name: str, data: bytes, reason: str):
    """With what is wrong with it."""
    (tmp_path / name).write_bytes(data)
    with pytest.raises(TrainingError, match=reason):
        list(documents([tmp_path / name]))


def test_files_are_checked_before_they_are_read(tmp_path: Path):
    """A missing file and one that is no text."""
    with pytest.raises(TrainingError, match=r"none\.txt does not exist"):
        check_files([tmp_path / "none.txt"])
    with pytest.raises(TrainingError, match=r"x\.csv is not a text file; its name must end in \.txt, \.txt\.gz"):
        check_files([Path("x.csv")])


def test_half_a_percent_is_held_out():
    """Spread over the text."""
    assert [number for number in range(1000) if is_held_out(number)] == [0, 200, 400, 600, 800]
