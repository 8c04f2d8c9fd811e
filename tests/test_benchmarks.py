"""The benchmarks as a whole: the list of them is complete, and they use public names only."""

import ast
import re
import sys
from pathlib import Path

import pytest

from benchmarks.common.libraries import kept

FOLDER = Path(__file__).parents[1] / "benchmarks"
FILES = sorted(FOLDER.rglob("*.py"))


def test_the_readme_names_every_benchmark() -> None:
    """By file, and nothing that is gone."""
    text = (FOLDER / "README.md").read_text()
    named = set(re.findall(r"`((?:[a-z]+/)?[a-z0-9_]+\.py)`", text))
    assert {path.name for path in FOLDER.glob("*.py")} <= named
    assert all((FOLDER / name).is_file() for name in named)


def test_nothing_is_taken_from_the_tests() -> None:
    """A benchmark runs where only the sources are."""
    assert not [path.name for path in FILES if re.search(r"^\s*(from|import) tests\b", path.read_text(), re.MULTILINE)]


def test_no_private_attribute_of_another_object_is_read() -> None:
    """Its own (`self._x`, or `moved._x` of the same class) are not another's. torch has operators with such names, and
    `gpu/interpreter.py` replaces two functions of Triton's interpreter."""
    found = []
    for path in FILES:
        text = path.read_text()
        own = set(re.findall(r"\bself\.(_[a-z]\w*)", text))
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Attribute) and re.match(r"_[a-z]", node.attr) and node.attr not in own:
                found.append(f"{path.name}:{node.lineno} {node.attr}")
    operators = {" _reorder_linear_weight", " _linear_pointwise"}
    replaced = {" _patch_lang", " _get_np_dtype"}
    assert [one for one in found if not one.endswith((" _asdict", *operators, *replaced))] == []


def test_a_kept_folder_is_filled_once_and_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A conversion that fails leaves nothing, other contents have another folder, and a second call fills nothing."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path))

    def fail(folder: Path) -> None:
        (folder / "half").touch()
        raise AssertionError

    with pytest.raises(AssertionError):
        kept("model", b"weights", fail)
    assert list((tmp_path / "foreign").iterdir()) == []
    folder = kept("model", b"weights", lambda folder: (folder / "whole").touch())
    assert [path.name for path in folder.iterdir()] == ["whole"]
    assert kept("model", b"weights", fail) == folder
    assert kept("model", b"other weights", lambda folder: None) != folder
