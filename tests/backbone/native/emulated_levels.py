"""Libraries of levels whose instructions this processor may lack: emulation.h computes them in plain C."""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
from peltier_backbone.native.levels import processor_levels
from peltier_backbone.native.library import Library
from peltier_backbone.native.self_check import check

from tests.backbone.native.compiler import Compiler

_HEADER = Path(__file__).with_name("emulation.h")


class _Emulation(NamedTuple):
    """The level that is emulated on a processor of `level`, by an option for the header."""

    emulated: str
    level: str
    option: str


_EMULATIONS = {
    "amx_emulated": _Emulation("amx", "avx512_bf16", "-DEMULATE_AMX"),
    "avx2_vnni_emulated": _Emulation("avx2_vnni", "avx2", "-DEMULATE_AVX_VNNI"),
}
_OWN = {level.name: level for level in processor_levels()}
# Those that this processor can run.
EMULATED_LEVELS = [name for name, one in _EMULATIONS.items() if one.level in _OWN]


@pytest.fixture(scope="session")
def emulated_library(compiler: Compiler, tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Library]:
    """Gives the library of one of EMULATED_LEVELS, which has the name of the level that is emulated."""

    @cache
    def link(name: str) -> Library:
        one = _EMULATIONS[name]
        made = tmp_path_factory.mktemp(name) / f"{one.emulated}.so"
        found = Library(compiler.link_library(_OWN[one.level], made, ["-include", str(_HEADER), one.option]))
        check(found)
        return found

    return link
