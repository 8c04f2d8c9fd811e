"""Holds Peltier and the libraries beside it to an instruction level below the machine's own.

Libraries read their level from the environment when they are loaded, so a process gets it before it starts.
"""

import os
import sys
from argparse import ArgumentParser

from peltier_backbone.native.choice import AUTO, use_kernels
from peltier_backbone.native.levels import processor_levels

# The server's setting.
_KERNELS = "PELTIER_KERNELS"
# What reads each variable: CTranslate2; oneDNN, also in torch and OpenVINO; torch; MKL; AOCL-DLP in zentorch.
_VARIABLES = (
    "CT2_FORCE_CPU_ISA", "ONEDNN_MAX_CPU_ISA", "ATEN_CPU_CAPABILITY", "MKL_ENABLE_INSTRUCTIONS",
    "AOCL_DLP_ENABLE_INSTRUCTIONS",
)  # fmt: skip
_VALUES = {
    "amx": ("AVX512", "AVX512_CORE_AMX", "avx512", "AVX512_E4", "avx512"),
    "avx512_bf16": ("AVX512", "AVX512_CORE_BF16", "avx512", "AVX512_E3", "avx512"),
    "avx512_vnni": ("AVX512", "AVX512_CORE_VNNI", "avx512", "AVX512_E1", "avx512"),
    "avx512": ("AVX512", "AVX512_CORE", "avx512", "AVX512", "avx512"),
    "avx2_vnni": ("AVX2", "AVX2_VNNI", "avx2", "AVX2", "avx2"),
    "avx2": ("AVX2", "AVX2", "avx2", "AVX2", "avx2"),
}
_BFLOAT16 = {"amx_bf16", "avx512_bf16", "bf16"}


def own_level() -> str:
    """The best level of this processor."""
    return processor_levels()[0].name


def held_level() -> str:
    """What this process is held to, or the machine's own level."""
    level = os.environ.get(_KERNELS, AUTO)
    return own_level() if level == AUTO else level


def multiplies_bfloat16(level: str | None) -> bool:
    """Whether the level, by default the machine's own, has instructions for bfloat16, so that nothing emulates it."""
    name = level or own_level()
    return any(one.flags & _BFLOAT16 for one in processor_levels() if one.name == name)


def add_level(parser: ArgumentParser) -> None:
    """The flag of a benchmark that can be held to a level."""
    names = [one.name for one in processor_levels() if one.name in _VALUES]
    parser.add_argument("--level", choices=names, help="hold every library to this level; default: the machine's own")


def environment(level: str | None) -> dict[str, str]:
    """The variables of a process that is held to `level`; none without one."""
    return {} if level is None else {_KERNELS: level, **dict(zip(_VARIABLES, _VALUES[level], strict=True))}


def hold_process(level: str | None) -> None:
    """Holds this process to `level`. It starts again with the variables, because torch is loaded already."""
    if level is not None and os.environ.get(_KERNELS) != level:
        sys.stdout.flush()
        command = [sys.executable, *sys.orig_argv[1:]]
        os.execve(sys.executable, command, os.environ | environment(level))  # noqa: S606 (no shell is needed)
    hold_kernels()


def hold_kernels() -> None:
    """Holds Peltier's kernels to the level in the environment, if there is one; before a backbone is loaded."""
    use_kernels(os.environ.get(_KERNELS, AUTO))
