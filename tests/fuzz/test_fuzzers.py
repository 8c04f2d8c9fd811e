"""Runs the corpus of each of the other fuzzers again; with FUZZ_SECONDS the fuzzers themselves, which grow it."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("atheris", reason="atheris has no release for this platform")

_FOLDER = Path(__file__).parent
# Without a time only the corpus runs: a new input would fail the suite by chance, in a commit that is not to blame.
_MAX_SECONDS = int(os.environ.get("FUZZ_SECONDS", "0"))
# The limit of memory is of the process; see test_fuzz_artifact.py.
_IN_A_SHELL = ["sh", "-c", '"$@"; exit $?', "sh"]


@pytest.mark.slow  # test_bodies.py, test_connection.py and the importers' own tests stay
@pytest.mark.parametrize("name", ["bodies", "heads", "importers"])
def test_every_input_is_read_or_refused(name: str, tmp_path: Path) -> None:
    """No input raises what the server or the importer does not answer."""
    with zipfile.ZipFile(_FOLDER / "corpus" / f"{name}.zip") as corpus:
        corpus.extractall(tmp_path / name)
    flags = [
        f"-max_total_time={_MAX_SECONDS}" if _MAX_SECONDS else "-runs=0",
        f"-dict={_FOLDER / name}.dict",
        f"-artifact_prefix={tmp_path}/",
    ]
    command = [*_IN_A_SHELL, sys.executable, str(_FOLDER / f"fuzz_{name}.py"), str(tmp_path / name), *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_MAX_SECONDS + 240)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    assert " runs in " in done.stderr
