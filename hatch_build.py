"""Compiles the native kernels beside their loader when the project is installed or built into a wheel.

The compiler is clang from the package `ziglang`, in the version that pyproject.toml pins, so the kernels do not depend
on the machine that builds them.
"""

import os
import platform
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from runpy import run_path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NATIVE = Path("backbone", "peltier_backbone", "native")
# The C library that the kernels need on Linux, at least. Elsewhere the target is the machine itself.
_GLIBC = "2.17"
_LINUX_MACHINES = ("x86_64", "aarch64")


class KernelBuildError(RuntimeError):
    """The kernels of a level could not be compiled; the message is one sentence and the compiler's errors."""


class CustomBuildHook(BuildHookInterface[Any]):
    """Hatchling's call before a wheel or an editable install is made."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile. A wheel carries the libraries and is for machines of this kind only. Without a target for this
        machine, warn and make a wheel of pure Python."""
        reason = why_no_target()
        if reason is not None:
            self.app.display_warning(f"{reason}, so no native kernels are built: torch computes, slower on a CPU")
            return
        libraries = compile_kernels(Path(self.root, NATIVE))
        if version == "standard":
            build_data["artifacts"] += [str(NATIVE / library.name) for library in libraries]
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{_platform_tag()}"


def why_no_target() -> str | None:
    """Why this machine has no native kernels; None if it has."""
    if os.name == "nt":
        return "the native kernels are not written for Windows"
    if platform.system() == "Linux" and platform.libc_ver()[0] != "glibc":
        return "the native kernels need glibc"
    if find_spec("ziglang") is None:
        return f"the package ziglang has no compiler for {platform.system()} on {platform.machine()}"
    return None


def compile_kernels(folder: Path) -> list[Path]:
    """The libraries of `folder`, built from its C files: one for each level of this machine. A library that an earlier
    build made from the same files is kept. Raises a `KernelBuildError`."""
    table = run_path(str(folder / "levels.py"))
    stamp = table["digest"](folder)
    command = (*(sys.executable, "-m", "ziglang", "cc"), *_target(), *table["FLAGS"], f'-DPELTIER_SOURCES="{stamp}"')
    with (
        tempfile.TemporaryDirectory(dir=folder, prefix=".") as scratch,
        ThreadPoolExecutor(os.cpu_count()) as workers,
    ):
        levels = [level for level in table["machine_levels"]() if not _is_built(folder / f"{level.name}.so", stamp)]
        for made in list(workers.map(partial(_compile, command, folder, Path(scratch)), levels)):
            # A library that is in use stays whole: the new file takes its name.
            made.replace(folder / made.name)
    return [folder / f"{level.name}.so" for level in table["machine_levels"]()]


def _is_built(library: Path, stamp: str) -> bool:
    return library.exists() and stamp.encode() in library.read_bytes()


def _compile(command: Sequence[str], folder: Path, scratch: Path, level: Any) -> Path:
    """The library of a level, in `scratch`."""
    made = scratch / f"{level.name}.so"
    sources = map(str, sorted(folder.glob("*.c")))
    caches = {"ZIG_GLOBAL_CACHE_DIR": str(scratch / "cache"), "ZIG_LOCAL_CACHE_DIR": str(scratch / "cache")}
    whole = (*command, f"-mcpu={_cpu(level.cpu)}", *sources, "-o", str(made), "-lm")
    done = subprocess.run(whole, check=False, capture_output=True, text=True, env=os.environ | caches)  # noqa: S603
    if done.returncode:
        raise KernelBuildError(f"the native kernels of level {level.name} cannot be compiled:\n{done.stderr}")
    return made


def _target() -> tuple[str, ...]:
    if platform.system() != "Linux" or platform.machine() not in _LINUX_MACHINES:
        return ()
    return ("-target", f"{platform.machine()}-linux-gnu.{_GLIBC}")


def _cpu(name: str) -> str:
    """The processor `name` of a level as the target calls it. Clang has no plain ARM processor for macOS."""
    return name.replace("generic", "apple_m1") if platform.system() == "Darwin" else name


def _platform_tag() -> str:
    if _target():
        return f"manylinux_{_GLIBC.replace('.', '_')}_{platform.machine()}"
    return sysconfig.get_platform().replace("-", "_").replace(".", "_")
