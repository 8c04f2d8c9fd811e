"""Files of tenants, before a reader opens them."""

from pathlib import Path

import pytest
from peltier_training.errors import TrainingError
from peltier_training.service import examples
from peltier_training.service.examples import check_lines, file_kind, write_file


@pytest.mark.parametrize(
    ("name", "start", "kind"),
    [
        ("rows.jsonl", b"text,label\n", ".jsonl"),
        ("rows.CSV", b"{}", ".csv"),
        ("rows.conll", b"a\tO\n", ".conll"),
        ("upload", b'\xef\xbb\xbf \n{"text": "a"}', ".jsonl"),
        ("upload.txt", b"text,label\n", ".csv"),
        ("../../etc/passwd", b"text,label\n", ".csv"),
        ("", b"", ".csv"),
    ],
)
def test_a_file_is_read_as_its_name_or_its_first_bytes_say(name: str, start: bytes, kind: str):
    """Unknown suffixes do not count, and a name never becomes a path."""
    assert file_kind(name, start) == kind


def test_a_file_is_written_under_a_name_of_ours(tmp_path: Path):
    """Beside nothing else, with its bytes."""
    assert write_file(tmp_path, "train", "../../evil.csv", b"text,label\n", 11) == Path("train.csv")
    assert [path.name for path in tmp_path.iterdir()] == ["train.csv"]


@pytest.mark.parametrize(("name", "data"), [("rows.jsonl.gz", b"x"), ("rows", b"\x1f\x8b\x08")])
def test_a_compressed_file_is_refused(tmp_path: Path, name: str, data: bytes):
    """A small one may be read as a terabyte."""
    with pytest.raises(TrainingError, match=rf"^the file '{name}' is compressed; send it as it is, .jsonl or .csv$"):
        write_file(tmp_path, "train", name, data, len(data))


def test_bytes_are_counted_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A file that says it is 1 KB, and one that is too large."""
    with pytest.raises(TrainingError, match=r"^the file 'a' has 4,000 bytes; it was stored with 1,024$"):
        write_file(tmp_path, "train", "a", b"x" * 4_000, 1_024)
    monkeypatch.setattr(examples, "MAX_FILE_BYTES", 100)
    with pytest.raises(TrainingError, match=r"^the file 'a' has 101 bytes; a training reads at most 100$"):
        write_file(tmp_path, "train", "a", b"x" * 101, 101)
    assert list(tmp_path.iterdir()) == []


def test_an_endless_line_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Only as much of it is read as shows that it is too long."""
    monkeypatch.chdir(tmp_path)
    path = Path("train.jsonl")
    path.write_bytes(b"{}\n" + b"x" * (examples.MAX_LINE_BYTES + 1))
    with pytest.raises(TrainingError, match=r"^train.jsonl:2 has more than 1,048,576 bytes; shorten its texts$"):
        check_lines(path)
    path.write_bytes(b"x" * examples.MAX_LINE_BYTES + b"\n{}\n")
    with pytest.raises(TrainingError, match=r"^train.jsonl:1 "):
        check_lines(path)
    path.write_bytes(b"x" * (examples.MAX_LINE_BYTES - 1) + b"\n{}\n")
    check_lines(path)
