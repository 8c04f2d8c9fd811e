"""The functions of a compiled library, as its C sources declare them."""

import ctypes
from collections.abc import Mapping
from ctypes import c_char_p, c_float, c_int, c_int64, c_void_p
from pathlib import Path
from typing import Any, NamedTuple

from peltier_backbone.native.levels import digest

_FOLDER = Path(__file__).parent
_TENSOR = (c_void_p, c_int64, c_int)  # data, elements between rows, whether bfloat16
_TABLE = (c_void_p, c_int64, c_void_p)  # groups, their number, starts of rows
_ROWS = (c_void_p, c_int64)  # data, elements between rows


class _Signature(NamedTuple):
    """The types of the arguments and of the result. Functions that may lack memory return whether they failed."""

    arguments: tuple[Any, ...] = ()
    result: Any = c_int


_SIGNATURES: Mapping[str, _Signature] = {
    "peltier_runs": _Signature(),
    "peltier_adapt": _Signature((*_TENSOR, *_TENSOR, *_ROWS, c_int64, *_TABLE, c_int64, c_void_p)),
    "peltier_norm": _Signature(
        (
            *(c_void_p,) * 3, *(c_int64,) * 3, c_int, c_void_p, c_void_p, c_int, c_int64, c_int64, c_float, c_int,
            *_TABLE, c_int64,
        )
    ),
    "peltier_multiply": _Signature((*_ROWS, *_TENSOR, c_void_p, c_void_p, *(c_int64,) * 3, c_int)),
    "peltier_panel": _Signature(result=c_int64),
    "peltier_multiply_int8": _Signature((*_ROWS, *_ROWS, c_int64, c_void_p, c_int)),
    "peltier_rows_int8": _Signature((c_void_p, c_void_p, c_int64, c_void_p)),
    "peltier_feed_forward_int8": _Signature((*_ROWS, *_ROWS, c_int64, c_void_p, c_void_p, c_int, c_int)),
    "peltier_panel_int8": _Signature(result=c_int64),
    "peltier_activate": _Signature((*_TENSOR, c_int64, c_int64, c_int, c_int), None),
    "peltier_attend": _Signature(
        (
            *_ROWS, *_TENSOR, c_void_p, c_void_p, c_int64, c_int, c_int64, c_void_p, *(c_int64,) * 3, c_float, c_int,
            c_int, c_int64, *_TABLE, c_int64, c_void_p,
        )
    ),
    "peltier_rotate": _Signature((*_TENSOR, c_void_p, c_void_p, *(c_int64,) * 3), None),
    "peltier_keep_keys": _Signature((c_void_p, c_void_p, c_int, c_int64, *_TENSOR, c_void_p, *(c_int64,) * 3), None),
    "peltier_stack": _Signature((c_void_p, c_void_p)),
    "peltier_likeliest": _Signature((c_void_p, *(c_int64,) * 3, c_void_p, c_void_p), None),
}  # fmt: skip


def open_functions(path: Path) -> ctypes.CDLL:
    """The functions of the library at `path`. Import torch first: the kernels share its threads. Raises OSError if the
    library cannot be loaded or was built from other sources than those beside it, AttributeError if it lacks a
    function."""
    functions = ctypes.CDLL(str(path))
    functions.peltier_sources.restype = c_char_p
    if functions.peltier_sources().decode() != digest(_FOLDER):
        raise OSError(f"{path.name} was built from other sources than the ones beside it")
    for name, signature in _SIGNATURES.items():
        function = getattr(functions, name)
        function.argtypes, function.restype = signature
    return functions
