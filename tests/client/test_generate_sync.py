"""The synchronous client is generated from the asynchronous one."""

import subprocess
import sys
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "client" / "generate_sync.py"


def test_no_generated_file_is_stale() -> None:
    """Whoever changes an asynchronous file, or a generated one by hand, is told to run the script."""
    outcome = subprocess.run([sys.executable, SCRIPT, "--check"], capture_output=True, text=True, check=False)
    assert (outcome.stdout, outcome.returncode) == ("", 0), outcome.stderr
