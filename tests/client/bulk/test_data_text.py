"""The text of data files: encodings, compression and names."""

import gzip
from pathlib import Path

import pytest
from peltier_client.bulk.data_text import near_path, read_text
from peltier_client.errors import InvalidInput

TEXT = "text,label\ncafé ☕,1\n"


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-32"])
@pytest.mark.parametrize("name", ["d.csv", "d.csv.gz"])
def test_unicode_is_read_by_its_mark(tmp_path: Path, encoding: str, name: str):
    """UTF-8 with a mark or without, UTF-16 and UTF-32 with one; packed or not."""
    data = TEXT.encode(encoding)
    (tmp_path / name).write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    assert read_text(tmp_path / name) == TEXT


def test_big_endian_marks_are_read(tmp_path: Path):
    """As other machines write them."""
    for encoding in ("utf-16-be", "utf-32-be"):
        (tmp_path / "d.csv").write_bytes(f"\ufeff{TEXT}".encode(encoding))
        assert read_text(tmp_path / "d.csv") == TEXT


BAD = {
    "latin-1": ("a\ncaf\xe9\n".encode("latin-1"), ":2 is not UTF-8 text: .* 0xe9; .* iconv -f LATIN1 -t UTF-8"),
    "utf-16 without a mark": (TEXT.encode("utf-16-le")[:20], ":1 has a NUL byte; a UTF-16 file must begin with a byte"),
    "half a letter": ("ab".encode("utf-16")[:-1], " begins like UTF-16 text but is not: truncated data"),
    "gzip": (gzip.compress(b"a"), r" is compressed by gzip, but its name does not end in \.gz"),
    "spreadsheet": (b"PK\x03\x04rest", " is a zip archive such as a spreadsheet; save it as CSV"),
    "parquet": (b"PAR1rest", " is a Parquet file; save it as JSONL or CSV"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_is_no_text_is_refused_by_what_it_is(tmp_path: Path, case: str):
    """Never read as garbage."""
    data, reason = BAD[case]
    (tmp_path / "d.csv").write_bytes(data)
    with pytest.raises(InvalidInput, match=rf"d\.csv{reason}"):
        read_text(tmp_path / "d.csv")


def test_a_mistyped_path_is_answered_with_the_nearest(tmp_path: Path):
    """The file, or the folder above it that is not there; nothing where nothing is like it."""
    (tmp_path / "reviews").mkdir()
    (tmp_path / "reviews" / "train.jsonl").touch()
    assert near_path(tmp_path / "reviews" / "trian.jsonl") == ", the nearest is 'train.jsonl'"
    assert near_path(tmp_path / "reveiws" / "train.jsonl") == ", the nearest is 'reviews'"
    assert near_path(tmp_path / "reviews" / "x") == ""
    with pytest.raises(InvalidInput, match=r"trian\.jsonl does not exist, the nearest is 'train\.jsonl'$"):
        read_text(tmp_path / "reviews" / "trian.jsonl")
