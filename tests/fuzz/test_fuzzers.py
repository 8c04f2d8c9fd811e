"""Runs the fuzzers for a short time; docs/notes/reliability.md says how to run them for longer."""

import os
import shutil
import subprocess
import sys
import zipfile
from importlib.util import find_spec
from pathlib import Path

import pytest
from peltier_backbone.native.levels import processor_levels

from tests.fuzz.sanitize import compile_sanitized
from tests.fuzz.seed import seed

_FOLDER = Path(__file__).parent
_MAX_SECONDS = os.environ.get("FUZZ_SECONDS")
_NUM_CALLS = os.environ.get("FUZZ_CALLS", "1000")
_GCC = shutil.which("gcc")
# libFuzzer limits the peak memory that Linux reports, which a fork takes from its parent and exec keeps (getrusage(2)).
# The shell between them has a small peak of its own.
_IN_A_SHELL = ["sh", "-c", '"$@"; exit $?', "sh"]


@pytest.mark.slow  # test_corpus.py stays, and property tests of test_artifact.py, test_bodies.py, test_connection.py
@pytest.mark.skipif(find_spec("atheris") is None, reason="atheris has no release for this platform")
@pytest.mark.parametrize("name", ["artifact", "bodies", "heads", "importers"])
def test_every_input_is_read_or_refused(name, request, tmp_path):
    """Of artifacts for seconds; of the others the corpus, because a new input would fail a commit by chance."""
    seeds = tmp_path / name
    if name == "artifact":
        make_artifact, bert = map(request.getfixturevalue, ("make_artifact", "bert"))
        seed(make_artifact(bert, "unipelt-apl"), seeds)
    with zipfile.ZipFile(_FOLDER / "corpus" / f"{name}.zip") as corpus:
        corpus.extractall(seeds)
    seconds = int(_MAX_SECONDS or (10 if name == "artifact" else 0))
    length = f"-max_total_time={seconds}" if seconds else "-runs=0"
    flags = [length, f"-dict={_FOLDER / name}.dict", f"-artifact_prefix={tmp_path}/"]
    command = [*_IN_A_SHELL, sys.executable, str(_FOLDER / f"fuzz_{name}.py"), str(seeds), *flags]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=seconds + 240)
    assert done.returncode == 0, done.stdout[-1000:] + done.stderr[-3000:]
    assert " runs in " in done.stderr


@pytest.mark.slow  # the kernels' tests against the formulas stay
@pytest.mark.skipif(_GCC is None, reason="gcc is not installed")
@pytest.mark.skipif("avx2" not in {one.name for one in processor_levels()}, reason="needs a processor with AVX2")
def test_no_call_reads_or_writes_beyond_its_tensors(tmp_path):
    """Of kernels with tensors of random sizes, and of random models with mixed batches, by gcc's sanitizers."""
    (level,) = (one for one in processor_levels() if one.name == "avx2")
    compile_sanitized(level, tmp_path)
    runtimes = [
        subprocess.run([str(_GCC), f"-print-file-name={name}"], capture_output=True, text=True, check=True).stdout
        for name in ("libasan.so", "libstdc++.so")
    ]
    options = {
        "LD_PRELOAD": " ".join(runtime.strip() for runtime in runtimes),
        "ASAN_OPTIONS": "detect_leaks=0",
        "UBSAN_OPTIONS": "halt_on_error=1:print_stacktrace=1",
        "PYTHONMALLOC": "malloc",
    }
    command = [sys.executable, str(_FOLDER / "fuzz_kernels.py"), str(tmp_path), level.name, "--seed", "0"]
    command += ["--seeds", _NUM_CALLS]
    done = subprocess.run(command, env={**os.environ, **options}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
