"""Lists of names on a command line."""

import json
from pathlib import Path

import pytest
from peltier_adapters.errors import AdapterError
from peltier_adapters.names import parse_names


def test_names_come_from_the_flag_or_a_json_file(tmp_path: Path):
    """`a,b,c`, or a file that ends in .json."""
    (tmp_path / "names.json").write_text(json.dumps(["a", "b, c"]))
    assert parse_names("labels", "a, b,c") == ("a", "b", "c")
    assert parse_names("labels", str(tmp_path / "names.json")) == ("a", "b, c")


@pytest.mark.parametrize("content", [None, "not json", '{"a": 1}', "[1, 2]", b"\xff"])
def test_a_bad_file_is_named(tmp_path: Path, content: str | bytes | None):
    """A missing one, one that is not JSON, one that is not a list of texts."""
    path = tmp_path / "names.json"
    if content is not None:
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(AdapterError, match=r"^--labels .*names\.json (cannot be read as|must contain a) JSON"):
        parse_names("labels", str(path))
