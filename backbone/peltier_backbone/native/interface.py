"""The C interface of the kernels, read from its headers: structs, functions, and the codes of names.

The headers are its only description: a field, a function or a code that is added there needs no change here. `ctypes`
lays structs out as the compilers of C do.
"""

import ctypes
import re
from collections.abc import Callable, Iterator, Mapping
from ctypes import POINTER, Structure, c_char_p, c_double, c_float, c_int, c_int64, c_void_p
from pathlib import Path
from typing import Any, NamedTuple, Self, TypeVar, cast

from peltier_backbone.native.levels import digest

_FOLDER = Path(__file__).parent
# A header follows those that it includes.
_HEADERS = ("types.h", "program.h", "kernels.h", "stack.h")

_NUMBERS: Mapping[str, Any] = {"int": c_int, "int64_t": c_int64, "float": c_float, "double": c_double}
_RESULTS: Mapping[str, Any] = {**_NUMBERS, "void": None, "const char *": c_char_p}

_COMMENT = re.compile(r"/\*.*?\*/", re.DOTALL)
_STRUCT = re.compile(r"typedef struct \{([^}]*)\} (\w+);")
_ENUM = re.compile(r"enum (\w+) \{([^}]*)\};")
_FUNCTION = re.compile(r"^(\w[\w *]*?) ?(peltier_\w+)\(([^)]*)\);", re.MULTILINE)
_DECLARATION = re.compile(r"(?:const )?(\w+) ((?:\*?\w+, )*\*?\w+)")
_PARAMETER = re.compile(r"const (\w+) \*\w+")

_Struct = TypeVar("_Struct", bound=type[Structure])


class Function(NamedTuple):
    """The types of a function's arguments and of its result."""

    arguments: tuple[Any, ...]
    result: Any


class Interface:
    """What headers declare. `structs` and `functions` are by name in C; a struct has no attributes but its fields.
    `codes` are the numbers of an enum's names, in lower case and without the name of the enum."""

    def __init__(self, text: str) -> None:
        """Raises a ValueError for a declaration that it cannot read."""
        text = _COMMENT.sub("", text)
        self.structs: dict[str, type[Structure]] = {}
        for fields, name in _STRUCT.findall(text):
            members = {"__slots__": (), "_fields_": list(self._fields(fields))}
            self.structs[name] = cast(type[Structure], type(name, (Structure,), members))
        self.codes = {name: _number(name, members) for name, members in _ENUM.findall(text)}
        self.functions = {
            name: Function(self._arguments(parameters), _RESULTS[result])
            for result, name, parameters in _FUNCTION.findall(text)
        }

    @classmethod
    def read(cls, folder: Path) -> Self:
        """What the headers in `folder` declare."""
        return cls("\n".join((folder / name).read_text(encoding="utf-8") for name in _HEADERS))

    def _fields(self, text: str) -> Iterator[tuple[str, Any]]:
        for declaration in filter(None, map(str.strip, text.split(";"))):
            found = _DECLARATION.fullmatch(declaration)
            if found is None:
                raise ValueError(f"cannot read the fields {declaration!r} of a struct")
            for name in found[2].split(", "):
                yield name.lstrip("*"), c_void_p if name.startswith("*") else self._type(found[1])

    def _type(self, name: str) -> Any:
        found = _NUMBERS.get(name) or self.structs.get(name)
        if found is None:
            raise ValueError(f"{name} is not a type of a field: it is no number and no struct declared before")
        return found

    def _arguments(self, parameters: str) -> tuple[Any, ...]:
        return () if parameters == "void" else tuple(map(self._argument, parameters.split(", ")))

    def _argument(self, parameter: str) -> Any:
        """A pointer to a struct. A call passes the struct itself, and ctypes refuses others."""
        found = _PARAMETER.fullmatch(parameter)
        if found is None:
            raise ValueError(f"cannot read the parameter {parameter!r} of a function")
        return POINTER(self.structs[found[1]])


def _number(enum: str, members: str) -> dict[str, int]:
    if "=" in members:
        raise ValueError(f"enum {enum} gives numbers; its names are counted from 0 on")
    names = [name.strip().lower().removeprefix(f"{enum}_") for name in members.split(",")]
    return {name: code for code, name in enumerate(names)}


INTERFACE = Interface.read(_FOLDER)


def c_struct(name: str) -> Callable[[_Struct], _Struct]:
    """Lets a class be struct `name` of the headers: the class statement gives its name in Python and its docstring."""

    def take(named: _Struct) -> _Struct:
        found = INTERFACE.structs[name]
        found.__name__, found.__qualname__, found.__module__ = named.__name__, named.__qualname__, named.__module__
        found.__doc__ = named.__doc__
        return cast(_Struct, found)

    return take


def open_functions(path: Path) -> ctypes.CDLL:
    """The functions of the library at `path`. Import torch first: the kernels share its threads. Raises OSError if the
    library cannot be loaded or was built from other sources than those beside it, AttributeError if it lacks a
    function."""
    opened = ctypes.CDLL(str(path))
    for name, function in INTERFACE.functions.items():
        own = getattr(opened, name)
        own.argtypes, own.restype = function
    if opened.peltier_sources().decode() != digest(_FOLDER):
        raise OSError(f"{path.name} was built from other sources than the ones beside it")
    return opened
