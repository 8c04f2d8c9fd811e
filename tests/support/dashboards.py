"""The dashboards for Grafana, as `make dashboards` writes them."""

import subprocess
import sys
from pathlib import Path

_GENERATOR = Path(__file__).parents[2] / "deploy" / "grafana" / "generate.py"
NAMES = ("adapters", "engine", "overview", "tenants")


def write_dashboards(folder: Path) -> None:
    """Writes a file for each of `NAMES`."""
    done = subprocess.run([sys.executable, _GENERATOR, folder], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert sorted(path.name for path in folder.iterdir()) == [f"{name}.json" for name in NAMES]
