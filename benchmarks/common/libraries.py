"""AdapterHub and PEFT from PyPI, each in its own folder, which only the interpreter of that contender can import.

AdapterHub pins an older transformers than Peltier's. torch and the other dependencies come from the environment, so
nothing large is downloaded. A folder is filled once and kept.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PACKAGES = {
    "peft": ("peft==0.21.2",),
    "adapterhub": ("adapters==1.3.0", "transformers==4.57.6", "huggingface-hub==0.36.2", "tokenizers==0.22.2"),
}


def installed(origin: str) -> Path:
    """The library's folder inside the environment, filled from PyPI the first time."""
    requirements = PACKAGES[origin]
    digest = hashlib.sha256(" ".join(requirements).encode()).hexdigest()[:12]
    folder = Path(sys.prefix) / "foreign" / f"{origin}-{digest}"
    if not folder.is_dir():
        folder.parent.mkdir(exist_ok=True)
        partial = Path(tempfile.mkdtemp(prefix=f".{origin}-", dir=folder.parent))
        install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-compile", "--target"]
        run([*install, str(partial), *requirements], {})
        _keep(partial, folder)
    return folder


def _keep(partial: Path, folder: Path) -> None:
    """`folder` appears whole; the first of several that fill it at a time wins."""
    try:
        partial.rename(folder)
    except OSError:
        shutil.rmtree(partial)
        if not folder.is_dir():
            raise


def run(command: list[str], environment: dict[str, str]) -> None:
    """A command that must succeed, with these variables beside the environment's own."""
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{' '.join(command)} failed: {done.stderr[-2000:]}"
