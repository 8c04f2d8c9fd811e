"""Assert statements tell what no caller can cause: `python -O` removes them."""

import ast
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = ("adapters_store", "backbone", "client", "server", "training")
# Functions that only look at values.
LOOKS = {"all", "isinstance", "keys", "len", "set", "stride", "tables"}


def _nodes() -> Iterator[tuple[Path, ast.AST]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            for node in ast.walk(ast.parse(path.read_text())):
                yield path, node


def _name(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else node.attr if isinstance(node, ast.Attribute) else ""


def _refusing_properties() -> set[str]:
    """The names of properties that raise an error."""
    functions = [node for _, node in _nodes() if isinstance(node, ast.FunctionDef)]
    named = [one for one in functions if any(_name(own).endswith("property") for own in one.decorator_list)]
    return {one.name for one in named if any(isinstance(own, ast.Raise) for own in ast.walk(one))}


def test_no_assert_checks_an_input():
    """A check that calls a function, or reads a property that refuses a value, would not be made with `-O`."""
    refusing, found = _refusing_properties(), []
    for path, node in _nodes():
        if not isinstance(node, ast.Assert):
            continue
        inside = list(ast.walk(node.test))
        calls = {_name(one.func) for one in inside if isinstance(one, ast.Call)}
        read = {one.attr for one in inside if isinstance(one, ast.Attribute)}
        if isinstance(node.test, ast.Attribute) or calls - LOOKS or read & refusing:
            found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert found == []
