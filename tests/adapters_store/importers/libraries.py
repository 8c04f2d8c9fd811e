"""Cases saved by AdapterHub and PEFT, each in the format of its library."""

import sys
from pathlib import Path

from benchmarks.common.libraries import PACKAGES, installed, run

__all__ = ["PACKAGES", "save_cases"]

SCRIPTS = Path(__file__).parent / "foreign"


def save_cases(origin: str, backbones: Path, output: Path) -> Path:
    """The folder of cases that the library saved for adapters of `backbones`."""
    script = [sys.executable, str(SCRIPTS / f"save_{origin}.py"), str(backbones), str(output)]
    run(script, {"PYTHONPATH": str(installed(origin)), "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"})
    return output
