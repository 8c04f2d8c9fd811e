"""The commands of Peltier."""

import subprocess
import sys
import textwrap
from pathlib import Path


def print_command(*words: object) -> None:
    """The command as a reader would type it, with the names of files in place of absolute paths."""
    names = [Path(word).name if word.startswith("/") else word for word in map(str, words)]
    line = " ".join(["$ peltier", *names])
    print(textwrap.fill(line, 110, initial_indent="  ", subsequent_indent=6 * " ", break_on_hyphens=False), flush=True)


def run_command(*words: object) -> str:
    """What the command prints; if it fails, the example ends with the command's error."""
    done = subprocess.run([sys.executable, "-m", "peltier_client", *map(str, words)], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout
