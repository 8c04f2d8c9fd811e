"""The levels of processors and their detection."""

from pathlib import Path

import pytest
from peltier_backbone.native.levels import LEVELS, machine_levels, processor_flags

# The flags of /proc/cpuinfo that count, of processors as Linux shows them.
_AVX2 = "fma movbe f16c abm bmi1 avx2 bmi2"
_AVX512 = f"{_AVX2} avx512f avx512dq avx512cd avx512bw avx512vl"
PROCESSORS = {
    "Nehalem": ("x86_64", "sse4_2 popcnt", "plain"),
    "Haswell": ("x86_64", _AVX2, "avx2"),
    "Alder Lake": ("x86_64", f"{_AVX2} avx_vnni", "avx2_vnni"),
    "Skylake-X": ("x86_64", _AVX512, "avx512"),
    "Ice Lake": ("x86_64", f"{_AVX512} avx512_vnni", "avx512_vnni"),
    "Zen 4": ("x86_64", f"{_AVX512} avx512_vnni avx512_bf16", "avx512_bf16"),
    "Sapphire Rapids": (
        "x86_64",
        f"{_AVX512} avx512_vnni avx512_bf16 avx_vnni amx_bf16 amx_tile amx_int8",
        "amx",
    ),
    "Graviton 1": ("aarch64", "fp asimd", "neon"),
    "Graviton 2": ("aarch64", "fp asimd asimddp", "neon_dotprod"),
    "Graviton 3": ("aarch64", "fp asimd asimddp sve i8mm bf16", "neon_i8mm"),
    "POWER9": ("ppc64le", "", "plain"),
}


@pytest.mark.parametrize("processor", PROCESSORS)
def test_a_processor_has_its_level(processor: str, tmp_path: Path) -> None:
    """The fastest of those whose flags it has."""
    machine, flags, expected = PROCESSORS[processor]
    info = tmp_path / "cpuinfo"
    info.write_text(f"processor\t: 0\n{'Features' if machine == 'aarch64' else 'flags'}\t\t: {flags}\n\n")
    runs = [level.name for level in machine_levels(machine) if level.flags <= processor_flags(info)]
    assert runs[0] == expected


def test_a_level_needs_more_than_the_next() -> None:
    """So the order is from the fastest to one that every processor of the machine can run."""
    for machine in ("x86_64", "aarch64", "ppc64le"):
        levels = machine_levels(machine)
        assert levels[-1].flags == frozenset()
        assert all(one.flags > levels[-1].flags for one in levels[:-1])
    assert len({(level.machine, level.name) for level in LEVELS}) == len(LEVELS)


def test_machines_have_the_names_of_every_system() -> None:
    """macOS and Windows name them in another way."""
    assert machine_levels("arm64") == machine_levels("aarch64")
    assert machine_levels("AMD64") == machine_levels("x86_64")


def test_a_system_without_flags_has_the_lowest_level(tmp_path: Path) -> None:
    """Whatever its processor can do."""
    assert processor_flags(tmp_path / "none") == frozenset()
