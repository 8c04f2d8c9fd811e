"""The compiler of the kernels, for tests that compile them in another way than the installation."""

import os
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from peltier_backbone.native import levels
from peltier_backbone.native.levels import FLAGS, Level, digest

FOLDER = Path(levels.__file__).parent
_GLIBC = "2.17"
# Flags of a library, which a program and a text of instructions do not have.
_OF_A_LIBRARY = {"-shared", "-s"}


class Compiler:
    """Compiles with the flags of the installation. What the compiler keeps between calls is in `cache`."""

    def __init__(self, cache: Path) -> None:
        self._environment = os.environ | {"ZIG_GLOBAL_CACHE_DIR": str(cache), "ZIG_LOCAL_CACHE_DIR": str(cache)}

    def link_library(self, level: Level, made: Path, options: Sequence[str] = ()) -> Path:
        """Makes the library of a level, as the installation does, with further options."""
        return self._run(level, [*FLAGS, "-Wall", "-Wextra", *options], sorted(FOLDER.glob("*.c")), made)

    def link_program(self, level: Level, made: Path, source: Path) -> Path:
        """Makes a program of one file."""
        return self._run(level, _flags_of_a_file(), [source], made)

    def assemble(self, level: Level, made: Path, source: Path) -> str:
        """The instructions of a file, as text."""
        options = (*_flags_of_a_file(), "-S", "-g0", "-Wno-unused-command-line-argument")
        return self._run(level, options, [source], made).read_text()

    def _run(self, level: Level, options: Sequence[str], sources: Sequence[Path], made: Path) -> Path:
        target = ("-target", f"{level.machine}-linux-gnu.{_GLIBC}", f"-mcpu={level.cpu}")
        command = (
            *(sys.executable, "-m", "ziglang", "cc", *target, *options, f'-DPELTIER_SOURCES="{digest(FOLDER)}"'),
            *(*map(str, sources), "-o", str(made), "-lm"),
        )
        done = subprocess.run(command, env=self._environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return made


def _flags_of_a_file() -> list[str]:
    return [flag for flag in FLAGS if flag not in _OF_A_LIBRARY]


@pytest.fixture(scope="session")
def compiler(pytestconfig: pytest.Config, tmp_path_factory: pytest.TempPathFactory) -> Compiler:
    """What the compiler keeps is for all workers and for later runs; without pytest's cache for this run alone. It
    finds a result by all that the result is made from."""
    if pytestconfig.pluginmanager.hasplugin("cacheprovider"):
        return Compiler(pytestconfig.cache.mkdir("compiler"))
    folder = tmp_path_factory.getbasetemp()
    return Compiler((folder.parent if "PYTEST_XDIST_WORKER" in os.environ else folder) / "compiler")
