"""Rows of a CoNLL file: a line for each word, in columns, and an empty line between texts."""

from collections.abc import Iterator
from typing import Any

from peltier_training.data.raw_row import RawRow

KINDS = (".conll", ".bio", ".iob", ".iob2")
_DOCUMENT = "-DOCSTART-"


def read_conll(text: str, words: str, tags: str) -> list[RawRow]:
    """A row for each text, with its words in the column called `words` and their tags in `tags`.

    The first column of a line is the word and the last its tag. Columns end at tabs, or without tabs at spaces. Lines
    that begin with `#` and a space, and those of `-DOCSTART-`, are not read."""
    return list(_rows(text, words, tags))


def _rows(text: str, words: str, tags: str) -> Iterator[RawRow]:
    first, pairs = 0, list[tuple[str, str]]()
    problem: str | None = None
    for number, line in enumerate([*text.split("\n"), ""], 1):
        cells = line.rstrip("\r").split("\t") if "\t" in line else line.split()
        if _is_comment(line, cells):
            continue
        if not any(cell.strip() for cell in cells):
            if pairs or problem:
                yield RawRow(first, _cells(pairs, words, tags), problem)
            pairs, problem = [], None
            continue
        if not pairs and problem is None:
            first = number
        if len(cells) < 2:
            problem = problem or f"has no tag for {cells[0].strip()!r} in line {number}; a line has a word and its tag"
        pairs.append((cells[0].strip(), cells[-1].strip()))


def _is_comment(line: str, cells: list[str]) -> bool:
    return (line.startswith("# ") and len(cells) != 2) or (bool(cells) and cells[0] == _DOCUMENT)


def _cells(pairs: list[tuple[str, str]], words: str, tags: str) -> dict[str, Any]:
    return {words: [word for word, _ in pairs], tags: [tag for _, tag in pairs]}
