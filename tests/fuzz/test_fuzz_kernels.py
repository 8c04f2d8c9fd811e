"""Runs the fuzzer of the kernels, on the same calls each time; docs/notes/reliability.md has longer runs."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from peltier_backbone.native.levels import processor_levels

from tests.fuzz.sanitize import compile_sanitized

_NUM_CALLS = int(os.environ.get("FUZZ_CALLS", "1000"))
_GCC = shutil.which("gcc")


@pytest.mark.slow  # the kernels' tests against the formulas stay
@pytest.mark.skipif(_GCC is None, reason="gcc is not installed")
@pytest.mark.skipif("avx2" not in {one.name for one in processor_levels()}, reason="needs a processor with AVX2")
def test_no_call_reads_or_writes_beyond_its_tensors(tmp_path: Path) -> None:
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
    program = Path(__file__).with_name("fuzz_kernels.py")
    flags = ["--seed", "0", "--seeds", str(_NUM_CALLS)]
    command = [sys.executable, str(program), str(tmp_path), level.name, *flags]
    done = subprocess.run(command, env={**os.environ, **options}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
