"""Tables on terminals and in pipes."""

from io import StringIO

import pytest
from peltier_client.commands.tables import Heading, fit, show
from rich.console import Console

HEADINGS = [Heading("name", 12), Heading("at", 10), Heading("digest", 10, cut=True), Heading("count")]
ROWS = [("a" * 63, "2026-11-21 10:00", "0123456789abcdef" * 4, "12"), ("short [b]name", "", "z" * 64, "1")]


def shown(width: int | None) -> list[str]:
    """The lines on a terminal of so many columns, or in a pipe."""
    file = StringIO()
    show(HEADINGS, ROWS, Console(file=file, width=width, force_terminal=width is not None, color_system=None))
    return [line.rstrip() for line in file.getvalue().splitlines()]


def test_a_pipe_gets_every_value_whole() -> None:
    """One line a row, however long it is; what looks like markup is text."""
    lines = shown(None)
    assert len(lines) == 1 + len(ROWS)
    for line, row in zip(lines[1:], ROWS, strict=True):
        assert line.split() == " ".join(row).split()


@pytest.mark.parametrize("width", [45, 60, 80, 120])
def test_a_narrow_terminal_wraps_and_cuts(width: int) -> None:
    """No line is longer than the terminal, no column narrower than its floor, and a count is never cut."""
    lines = shown(width)
    assert max(map(len, lines)) <= width
    assert any("12" in line.split() for line in lines)
    assert all(word in " ".join(lines) for word in ("2026-11-21", "10:00", "name", "digest", "aaaaaaaaaaaa"))
    assert any(line.endswith("…") or "… " in line for line in lines)


def test_too_many_columns_become_a_list() -> None:
    """A name and a value a line, nothing cut away; empty values have no line."""
    lines = shown(30)
    assert max(map(len, lines)) <= 30
    assert lines[0].startswith("name    aaaa")
    assert "".join(line.split()[-1] for line in lines if line).count("z") == 64
    assert sum(line.startswith("at ") for line in lines) == 1


def test_columns_share_what_is_left() -> None:
    """Each gets what it wants where that is little, and an equal part of the rest otherwise."""
    headings = [Heading("a", 4), Heading("b", 4), Heading("c")]
    rows = [("x" * 40, "x" * 6, "x" * 5)]
    assert fit(headings, rows, 80) == [40, 6, 5]
    assert fit(headings, rows, 30) == [15, 6, 5]
    assert fit(headings, rows, 17) == [4, 4, 5]
    assert fit(headings, rows, 16) is None
    assert fit(headings, [], 16) == [1, 1, 1]
