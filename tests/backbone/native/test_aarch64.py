"""The kernels of every level of aarch64, cross-compiled and run by an emulator.

The tests of the kernels run here once more. What they compare with is computed by torch in float64, as on every other
machine, so nothing is recorded.
"""

import inspect
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from peltier_backbone.native import library
from peltier_backbone.native.example_layer import ExampleLayer, Sizes
from peltier_backbone.native.interface import INTERFACE
from peltier_backbone.native.levels import LEVELS
from peltier_backbone.native.library import Library
from peltier_backbone.native.rows import STACK_SITES, PlacedOps, PlacedRows, StackRows, Table, TableGroup
from peltier_backbone.native.self_check import check

from tests.backbone.native import test_int8, test_library, test_multiply, test_program, test_rows
from tests.backbone.native.compiler import Compiler
from tests.backbone.native.other_machine import run_kernels

_LEVELS = {level.name: level for level in LEVELS if level.machine == "aarch64"}
# The code of the highest level is that of the others, but for the products: those in 8 bits, and in bfloat16.
_HIGHEST = "neon_i8mm"
_SERVER = Path(__file__).with_name("other_machine.c")
# Every instruction that the emulator knows, and Debian's C library for the machine.
_C_LIBRARY = Path("/usr/aarch64-linux-gnu")
_EMULATOR = ("qemu-aarch64", "-cpu", "max", "-L", str(_C_LIBRARY))


@pytest.fixture(scope="module")
def linked(request: pytest.FixtureRequest, compiler: Compiler, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of a level, linked for the oldest C library."""
    return compiler.link_library(_LEVELS[request.param], tmp_path_factory.mktemp("aarch64") / f"{request.param}.so")


@pytest.fixture(scope="module")
def _emulator() -> None:
    """Skips before a library is compiled for nothing."""
    if shutil.which(_EMULATOR[0]) is None or not _C_LIBRARY.exists():
        pytest.skip("needs qemu-user and libc6-arm64-cross")


@pytest.fixture(scope="module")
def native(_emulator: None, linked: Path, compiler: Compiler) -> Iterator[Library]:
    """It is loaded by an emulated process."""
    program = compiler.link_program(_LEVELS["neon"], linked.with_name("program"), _SERVER)
    with run_kernels(_EMULATOR, program, linked) as kernels, pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "open_functions", lambda path: kernels)
        yield Library(linked)


# The emulated process has one thread. The test of rows in every company has 141 calls of large products each time.
_LEFT_OUT = re.compile(r"test_threads_.*|test_a_row_does_not_depend_on_the_others")

for _module in (test_int8, test_library, test_multiply, test_program, test_rows):
    for _name, _test in inspect.getmembers(_module, inspect.isfunction):
        if not (_name.startswith("test_") and "native" in inspect.signature(_test).parameters):
            continue
        if not _LEFT_OUT.fullmatch(_name):
            assert _name not in globals(), f"two tests have the name {_name}"
            globals()[_name] = _test


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests of products, and those of this file, run at each level; the others at the highest one."""
    if "linked" in metafunc.fixturenames:
        module = metafunc.function.__module__
        levels = _LEVELS if module in (test_int8.__name__, test_multiply.__name__, __name__) else (_HIGHEST,)
        metafunc.parametrize("linked", levels, indirect=True, scope="module")


def test_the_library_has_every_function(linked: Path) -> None:
    """It is stripped, so the names that are left are those of its dynamic symbols."""
    names = linked.read_bytes().split(b"\0")
    assert [name for name in INTERFACE.functions if name.encode() not in names] == []


def test_the_self_check_passes(native: Library) -> None:
    """Of products, of whole layers of an encoder and of a decoder, and of the likeliest tokens."""
    check(native)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_row_of_a_product_is_the_same_in_any_tile(native: Library, dtype: torch.dtype) -> None:
    """To the last bit, alone and with any number of rows before and after it."""
    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(rows, 70, generator=generator).to(dtype) for rows in (45, 53))
    packed = native.pack(weight)
    together = native.multiply(x, packed, None, "gelu")
    for first, last in ((0, 1), (5, 7), (3, 16), (20, 45)):
        assert torch.equal(native.multiply(x[first:last], packed, None, "gelu"), together[first:last])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@torch.inference_mode()
def test_a_row_of_a_layer_is_the_same_alone(native: Library, dtype: torch.dtype) -> None:
    """To the last bit, with its adapter and without the rows of other adapters, in one call of the whole layer."""
    lengths, groups = [5, 3, 1, 4], [(2, 7), (1, 3), (1, 0)]
    batch = ExampleLayer(Sizes(lengths, 36, 2, 50, groups), dtype).by_library(native)
    together = torch.split(batch.run(), lengths)
    assert batch.ops.table is not None
    programs = [group.program for group in batch.ops.table._kept for _ in range(group.rows)]
    for x, length, program, expected in zip(torch.split(batch.x, lengths), lengths, programs, together, strict=True):
        table = Table([length], [TableGroup(1, program)])
        ops = PlacedOps(table, range(len(STACK_SITES)), torch.empty(table.max_ops, 1), prefixed=False)
        alone = batch._replace(x=x, rows=StackRows(PlacedRows.packed([length], [length])), ops=ops)
        assert torch.equal(alone.run(), expected)
