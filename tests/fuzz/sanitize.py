"""Compiles the native kernels for x86-64 with gcc's sanitizers: `python tests/fuzz/sanitize.py LEVEL… --folder DIR`."""

import argparse
import shutil
import subprocess
from pathlib import Path

from peltier_backbone.native import levels

_SOURCES = Path(levels.__file__).parent
_FLAGS = ("-O1", "-g", "-fno-omit-frame-pointer", "-fsanitize=address,undefined")


def compile_sanitized(level: levels.Level, folder: Path) -> Path:
    """The library of a level in `folder`."""
    machine, *more = level.cpu.split("+")
    target = (f"-march={machine.replace('_', '-')}", *(f"-m{one.replace('_', '-')}" for one in more))
    kept = [flag for flag in levels.FLAGS if flag not in ("-O3", "-s")]
    stamp = f'-DPELTIER_SOURCES="{levels.digest(_SOURCES)}"'
    made = folder / f"{level.name}.so"
    sources = map(str, sorted(_SOURCES.glob("*.c")))
    subprocess.run(
        [str(shutil.which("gcc")), *kept, *_FLAGS, *target, stamp, *sources, "-o", str(made), "-lm"], check=True
    )
    return made


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("levels", nargs="+")
    parser.add_argument("--folder", type=Path, required=True)
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    for level in levels.machine_levels():
        if level.name in asked.levels:
            print(compile_sanitized(level, asked.folder))


if __name__ == "__main__":
    main()
