"""Compiles the native kernels beside their loader when the project is installed or built into a wheel.

A machine without a C compiler gets a project of pure Python, which computes the same more slowly.
"""

import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sysconfig
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NATIVE = Path("backbone", "peltier_backbone", "native")
_FLAGS = ("-std=gnu11", "-O3", "-ffp-contract=fast", "-fPIC", "-shared", "-fvisibility=hidden", "-Wno-psabi")
# A library for each level of a processor's vector units; the loader takes the highest that the machine has.
_LEVELS = {
    "amx": ("-march=x86-64-v4", "-mavx512bf16", "-mamx-tile", "-mamx-bf16"),
    "avx512_bf16": ("-march=x86-64-v4", "-mavx512bf16"),
    "avx512": ("-march=x86-64-v4",),
    "avx2": ("-march=x86-64-v3",),
    "plain": (),
}


class CustomBuildHook(BuildHookInterface[Any]):
    """Hatchling's call before a wheel or an editable install is made."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile; a wheel then carries the libraries, and is for machines of this kind alone."""
        libraries = compile_kernels(Path(self.root, NATIVE))
        if not libraries:
            self.app.display_warning("no C compiler: torch alone computes, which is slower on a CPU")
        elif version == "standard":
            build_data["artifacts"] += [str(NATIVE / library.name) for library in libraries]
            build_data["pure_python"] = False
            build_data["tag"] = "py3-none-" + sysconfig.get_platform().replace("-", "_").replace(".", "_")


def compile_kernels(folder: Path) -> list[Path]:
    """The libraries of `folder`, built from its C files: those that this machine's compiler can build, if it has one.
    What an earlier build left stays; the loader knows it by its digest."""
    compiler = shlex.split(os.environ.get("CC", "cc"))
    if os.name == "nt" or shutil.which(compiler[0]) is None:
        return []
    levels = _LEVELS if platform.machine() == "x86_64" else {"plain": ()}
    return [folder / f"{name}.so" for name, flags in levels.items() if _compile([*compiler, *flags], folder, name)]


def _compile(command: Sequence[str], folder: Path, name: str) -> bool:
    """Whether the compiler made `name`.so. It takes an older one's place at once, as that may be in use."""
    stamp = f'-DPELTIER_SOURCES="{digest(folder)}"'
    sources = [str(path) for path in sorted(folder.glob("*.c"))]
    with tempfile.TemporaryDirectory(dir=folder, prefix=".") as scratch:
        made = Path(scratch, f"{name}.so")
        whole = [*command, *_FLAGS, stamp, *sources, "-o", str(made), "-lm"]
        # A compiler without OpenMP makes kernels for one thread.
        built = _run([*whole, "-fopenmp"], quiet=True) or _run(whole)
        if built:
            made.replace(folder / made.name)
    return built


def _run(command: Sequence[str], *, quiet: bool = False) -> bool:
    """Whether the command went well."""
    errors = subprocess.DEVNULL if quiet else None
    return subprocess.run(command, check=False, stderr=errors).returncode == 0  # noqa: S603


def digest(folder: Path) -> str:
    """Of the C files, by which the loader knows a library that was built from others."""
    text = b"".join(path.read_bytes() for path in sorted(folder.glob("*.[ch]")))
    return hashlib.sha256(text).hexdigest()
