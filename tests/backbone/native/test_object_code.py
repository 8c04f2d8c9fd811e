"""The instructions of the products, as the compiler writes them for each level.

A sum that lives in memory is stored each time something is added to it, which made products ten times slower.
"""

import re
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from peltier_backbone.native.levels import LEVELS, Level

from tests.backbone.native.compiler import FOLDER, Compiler

_MACHINES = ("x86_64", "aarch64")
# The files that have each kind of tile, and the functions around these.
_TILES = {
    "attention.c": re.compile(r"(?:pair_)?stripe_\d"),
    "int8.c": re.compile(r"panel_of_\d|sum_bytes"),
    "amx.c": re.compile(r"sum_pairs"),
}
_MULTIPLIES = re.compile(
    r"(?:\{vex\}\s+)?(?:vfmadd|v?mulps|vdpbf16ps|vpdpbusd|vpmaddubsw|v?pmaddwd|tdp|fmla|bfdot|u?sdot|smull)"
)
# A vector or a tile that goes to memory; a product of what is on the stack; a call, before which all vectors go there.
_SPILLS = re.compile(
    r"v?mov\w+\s+%[xyz]mm\d+, [^%]*\(|tilestored|st[rpu]+\s+q|st1\s"
    rf"|{_MULTIPLIES.pattern}.*\((?:%rsp|%rbp)|(?:call|bl)\w*\s"
)
_BLOCK = re.compile(r"(?:\.L|(?:#|//) %)(BB\d+_\d+|bb\.\d+):")
_IN_LOOP = re.compile(r"in Loop: Header=(BB\d+_\d+)")
_COMMENT = re.compile(r"\s+(?:# |// ).*")


def _cases() -> Iterator[Any]:
    """Each level, and each file that has tiles there, as parameters."""
    for level, source in product(LEVELS, _TILES):
        if level.machine in _MACHINES and (source != "amx.c" or level.name == "amx"):
            yield pytest.param(level, source, id=f"{level.name}-{source}")


# A tile as it was: its twenty-four sums of sixteen floats need 48 registers with AVX2, and 96 with NEON.
_TOO_WIDE = """
#include <stdint.h>
#include <string.h>
typedef float lanes __attribute__((vector_size(64)));
void stripe_1(float *y, const float *x, const float *w, int64_t inner) {
    lanes sums[8][3] = {0}, line[3];
    for (int64_t k = 0; k < inner; k++, w += 48) {
        memcpy(line, w, sizeof line);
        _Pragma("unroll") for (int r = 0; r < 8; r++)
            _Pragma("unroll") for (int c = 0; c < 3; c++) sums[r][c] += x[r * inner + k] * line[c];
    }
    memcpy(y, sums, sizeof sums);
}
"""


def _functions(text: str, names: re.Pattern[str]) -> dict[str, list[str]]:
    """The lines of each function of these names."""
    found: dict[str, list[str]] = {}
    name = ""
    for line in text.splitlines():
        if label := re.match(r"(\w+):", line):
            name = label[1]
        if names.fullmatch(name):
            found.setdefault(name, []).append(line)
    return found


def _inner_loops(lines: list[str]) -> list[list[str]]:
    """The instructions of each innermost loop, whose blocks the compiler marks by comments."""
    loops: dict[str, list[str]] = {}
    innermost, block, loop = set(), "", ""
    for line in lines:
        if begun := _BLOCK.match(line):
            block, loop = begun[1], ""
        if "This Inner Loop Header" in line:
            innermost.add(block)
            loop = block
        elif inside := _IN_LOOP.search(line):
            loop = inside[1]
        if line.startswith("\t") and not line.startswith("\t."):
            loops.setdefault(loop, []).append(_COMMENT.sub("", line).strip())
    return [loops[name] for name in loops if name in innermost]


def _spills(text: str, names: re.Pattern[str]) -> tuple[int, dict[str, list[str]]]:
    """The number of loops that multiply, and what each function stores in them."""
    spilled: dict[str, list[str]] = {}
    count = 0
    for name, lines in _functions(text, names).items():
        loops = [loop for loop in _inner_loops(lines) if any(map(_MULTIPLIES.match, loop))]
        assert loops, f"{name} multiplies in a loop"
        count += len(loops)
        spilled[name] = [line for loop in loops for line in loop if _SPILLS.match(line)]
    return count, {name: lines for name, lines in spilled.items() if lines}


@pytest.mark.parametrize(("level", "source"), [*_cases()])
def test_no_sum_lives_in_memory(level: Level, source: str, compiler: Compiler, tmp_path: Path) -> None:
    """The loops of all tiles keep their sums in registers."""
    count, spilled = _spills(compiler.assemble(level, tmp_path / "assembly.s", FOLDER / source), _TILES[source])
    assert count > 0
    assert spilled == {}


@pytest.mark.parametrize("name", ["avx2", "neon"])
def test_a_sum_in_memory_is_found(name: str, compiler: Compiler, tmp_path: Path) -> None:
    """Tiles that are too large for the registers are refused."""
    level, source = next(one for one in LEVELS if one.name == name), tmp_path / "wide.c"
    source.write_text(_TOO_WIDE)
    count, spilled = _spills(compiler.assemble(level, tmp_path / "wide.s", source), _TILES["attention.c"])
    assert count == 1
    assert len(spilled["stripe_1"]) > 10
