"""The levels of processors for which the native kernels are compiled, and how they are compiled.

The build loads this file by its path (`hatch_build.py`), so it imports the standard library only.
"""

import hashlib
import platform
import re
from pathlib import Path
from typing import NamedTuple

_CPU_INFO = Path("/proc/cpuinfo")
# The names that other systems give to a machine.
_MACHINES = {"arm64": "aarch64", "amd64": "x86_64"}

# The package of the compiler, as pyproject.toml pins it, and the flags for every level.
COMPILER = "ziglang==0.15.2"
FLAGS = ("-std=gnu11", "-O3", "-ffp-contract=fast", "-fPIC", "-shared", "-fvisibility=hidden", "-Wno-psabi", "-s")


class Level(NamedTuple):
    """A set of instructions. `machine` is None for any machine that has no levels of its own; `cpu` is the name for the
    compiler, and `flags` are the flags of /proc/cpuinfo that a processor of this level has."""

    name: str
    machine: str | None
    cpu: str
    flags: frozenset[str]


def _flags(*lines: str) -> frozenset[str]:
    return frozenset(" ".join(lines).split())


_AVX2 = "avx2 fma f16c bmi1 bmi2 movbe abm"
_AVX512 = f"{_AVX2} avx512f avx512bw avx512cd avx512dq avx512vl"
_VNNI, _BF16, _AMX = "avx512_vnni", "avx512_bf16", "amx_tile amx_bf16 amx_int8"

# The fastest first.
LEVELS = (
    Level(
        "amx", "x86_64", "x86_64_v4+avx512vnni+avx512bf16+amx_tile+amx_bf16+amx_int8",
        _flags(_AVX512, _VNNI, _BF16, _AMX),
    ),
    Level("avx512_bf16", "x86_64", "x86_64_v4+avx512vnni+avx512bf16", _flags(_AVX512, _VNNI, _BF16)),
    Level("avx512_vnni", "x86_64", "x86_64_v4+avx512vnni", _flags(_AVX512, _VNNI)),
    Level("avx512", "x86_64", "x86_64_v4", _flags(_AVX512)),
    Level("avx2_vnni", "x86_64", "x86_64_v3+avxvnni", _flags(_AVX2, "avx_vnni")),
    Level("avx2", "x86_64", "x86_64_v3", _flags(_AVX2)),
    Level("plain", "x86_64", "x86_64", _flags()),
    Level("neon_i8mm", "aarch64", "generic+dotprod+i8mm+bf16", _flags("asimddp i8mm bf16")),
    Level("neon_dotprod", "aarch64", "generic+dotprod", _flags("asimddp")),
    Level("neon", "aarch64", "generic", _flags()),
    Level("plain", None, "baseline", _flags()),
)  # fmt: skip
LEVEL_NAMES = tuple(dict.fromkeys(level.name for level in LEVELS))


def machine_levels(machine: str | None = None) -> tuple[Level, ...]:
    """The levels of a machine, by default of this one, the fastest first."""
    name = (machine or platform.machine()).lower()
    name = _MACHINES.get(name, name)
    own = tuple(level for level in LEVELS if level.machine == name)
    return own or tuple(level for level in LEVELS if level.machine is None)


def processor_levels() -> tuple[Level, ...]:
    """The levels that this processor can run and that the operating system permits, the fastest first."""
    flags = processor_flags()
    return tuple(level for level in machine_levels() if level.flags <= flags)


def processor_flags(cpu_info: Path = _CPU_INFO) -> frozenset[str]:
    """The flags of /proc/cpuinfo. On a system without that file, those that every processor of the machine has."""
    try:
        found = re.search(r"^(?:flags|Features)\s*:(.*)$", cpu_info.read_text(), re.MULTILINE)
    except OSError:
        found = None
    if found:
        return _flags(found[1])
    # Every Mac with an ARM processor has the dot product.
    return _flags("asimddp") if (platform.system(), platform.machine()) == ("Darwin", "arm64") else _flags()


def digest(folder: Path) -> str:
    """The digest of the files from which the libraries in `folder` are built: the C files and this one. By it the
    loader recognises a library that was built from other files."""
    text = b"".join(path.read_bytes() for path in (*sorted(folder.glob("*.[ch]")), folder / "levels.py"))
    return hashlib.sha256(text).hexdigest()
