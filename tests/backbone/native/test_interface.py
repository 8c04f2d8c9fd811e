"""The C interface as Python reads it from the headers."""

import shutil
from ctypes import Structure, sizeof
from pathlib import Path
from typing import get_args

import pytest
from peltier_backbone.linear.activation import Activation
from peltier_backbone.native.interface import _HEADERS, INTERFACE, Interface
from peltier_backbone.native.levels import LEVELS, Level
from peltier_backbone.native.program import ACTIVATIONS, READS, NativeGate, Vector
from peltier_backbone.native.rows import STACK_SITES

from tests.backbone.native.compiler import FOLDER, Compiler


def _edit(folder: Path, header: str, old: str, new: str) -> Interface:
    """What the headers declare after a change of one."""
    for name in _HEADERS:
        shutil.copy(FOLDER / name, folder)
    text = (folder / header).read_text()
    assert old in text
    (folder / header).write_text(text.replace(old, new, 1))
    return Interface.read(folder)


def test_a_field_of_a_header_is_a_field_in_python(tmp_path: Path) -> None:
    """Without a change in Python, and also inside other structs, whose later fields move."""
    edited = _edit(tmp_path, "program.h", "int64_t outputs, column;", "int64_t outputs, added_field, column;")
    gate, op = edited.structs["gate"], edited.structs["op"]
    assert gate(added_field=7).added_field == 7
    assert gate.column.offset == NativeGate.column.offset + 8
    assert op.added.offset == INTERFACE.structs["op"].added.offset + 8


def test_a_function_and_a_code_of_a_header_are_known_in_python(tmp_path: Path) -> None:
    function = "void peltier_rotate(const rotate_call *call);"
    edited = _edit(tmp_path, "kernels.h", function, f"{function}\nint peltier_added(const rotate_call *call);")
    assert edited.functions["peltier_added"].arguments[0]._type_ is edited.structs["rotate_call"]
    edited = _edit(tmp_path, "types.h", "ACTIVATION_RELU,", "ACTIVATION_RELU,\n    ACTIVATION_SQUARE,")
    assert edited.codes["activation"]["square"] == 2


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("int64_t outputs, column;", "int64_t outputs[2];", r"cannot read the fields 'int64_t outputs\[2\]'"),
        ("int64_t outputs, column;", "short outputs, column;", "short is not a type of a field"),
    ],
)
def test_a_field_that_cannot_be_read_is_an_error(old: str, new: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=message):
        _edit(tmp_path, "program.h", old, new)


def test_a_code_with_a_number_of_its_own_is_an_error(tmp_path: Path) -> None:
    """Python would count it otherwise than C does."""
    with pytest.raises(ValueError, match="enum activation gives numbers"):
        _edit(tmp_path, "types.h", "ACTIVATION_RELU,", "ACTIVATION_RELU = 7,")


def test_a_call_has_only_the_fields_of_its_struct() -> None:
    """A misspelt field is an error, and so is another struct than the function takes."""
    with pytest.raises(AttributeError, match="activations"):
        INTERFACE.structs["multiply_call"](activations=1)
    (pointer,) = INTERFACE.functions["peltier_multiply"].arguments
    with pytest.raises(TypeError, match="instead of Vector"):
        pointer.from_param(Vector())


def test_names_of_codes_are_those_of_the_headers() -> None:
    assert tuple(ACTIVATIONS) == get_args(Activation)
    assert READS == {"x": 0, "sum": 1, "norm": 2}
    assert STACK_SITES[-1] == "prefix"


def _claims(name: str, struct: type[Structure]) -> list[str]:
    fields = [f"offsetof({name}, {field}) == {getattr(struct, field).offset}" for field, *_ in struct._fields_]
    return [f"sizeof({name}) == {sizeof(struct)}", *fields]


@pytest.mark.parametrize("level", [LEVELS[-2], LEVELS[6]], ids=lambda level: f"{level.name}-{level.machine}")
def test_python_lays_structs_out_as_the_compiler_does(level: Level, compiler: Compiler, tmp_path: Path) -> None:
    """On each kind of machine, to the byte; the compiler checks it."""
    claims = [claim for name, struct in INTERFACE.structs.items() for claim in _claims(name, struct)]
    source = tmp_path / "claims.c"
    lines = [f'#include "{FOLDER / "stack.h"}"', *(f'_Static_assert({claim}, "{claim}");' for claim in claims)]
    source.write_text("\n".join(lines) + "\n")
    assert compiler.assemble(level, tmp_path / "claims.s", source)
