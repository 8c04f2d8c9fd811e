"""Runs the fuzzer for a short time; docs/notes/reliability.md says how to run it for longer."""

import os
import subprocess
import sys
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from peltier_backbone.backbone import Backbone

from tests.fuzz.seed import seed

pytest.importorskip("atheris", reason="atheris has no release for this platform")

_FOLDER = Path(__file__).parent
_MAX_SECONDS = int(os.environ.get("FUZZ_SECONDS", "10"))
# libFuzzer limits the peak memory that Linux reports, which a fork takes from its parent and exec keeps (getrusage(2)).
# The shell between them has a small peak of its own.
_IN_A_SHELL = ["sh", "-c", '"$@"; exit $?', "sh"]


@pytest.mark.slow  # the property tests of test_artifact.py and test_corpus.py stay
def test_the_reader_only_ever_refuses(bert: Backbone, make_artifact: Callable[..., bytes], tmp_path: Path) -> None:
    """Thousands of mutations a second of headers and manifests: each reads or is an ArtifactError of readable lines."""
    seed(make_artifact(bert, "unipelt-apl"), tmp_path / "seeds")
    with zipfile.ZipFile(_FOLDER / "corpus" / "artifact.zip") as corpus:
        corpus.extractall(tmp_path / "seeds")
    flags = [
        f"-max_total_time={_MAX_SECONDS}",
        "-dict=" + str(_FOLDER / "artifact.dict"),
        f"-artifact_prefix={tmp_path}/",
    ]
    command = [*_IN_A_SHELL, sys.executable, str(_FOLDER / "fuzz_artifact.py"), str(tmp_path / "seeds"), *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_MAX_SECONDS + 240)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    assert " runs in " in done.stderr
