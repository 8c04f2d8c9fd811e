"""The kernels without a GPU: their results in Triton's interpreter, and their compilation for a GPU."""

import faulthandler
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton", reason="Triton has no build for this machine")
ROOT = Path(__file__).parents[3]


def _run(*command: str, **environment: str) -> None:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST_", "TRITON_"))}
    # It may take longer than a test that hangs may.
    faulthandler.cancel_dump_traceback_later()
    done = subprocess.run(
        [sys.executable, *command], env=inherited | environment, cwd=ROOT, capture_output=True, text=True, timeout=1800
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("marked", ["not slow", "slow"])
def test_kernels_compute_what_the_parts_do(marked: str):
    """Every test of `gpu/kernels/` passes in the interpreter, in a separate process."""
    options = ("-q", "-n0", "-p", "no:cacheprovider", "-m", marked)
    _run("-m", "pytest", *options, "tests/adapters_store/gpu/kernels", TRITON_INTERPRET="1")


@pytest.mark.slow
def test_kernels_compile_to_machine_code(tmp_path: Path):
    """What the interpreter lets pass the compiler may refuse: a type that changes in a loop, a tile that does not fit.
    It needs no GPU for that. For sm_80, sm_90 and sm_100 no kernel uses local memory."""
    _run("-m", "tests.adapters_store.gpu.kernels.compiled", TRITON_CACHE_DIR=str(tmp_path))


@pytest.mark.slow  # what it checks the tests of `gpu/kernels/` check
def test_the_gpu_benchmark_runs_dry(tmp_path: Path):
    """Every section of it at toy sizes in the interpreter; no check of an op, a batch, a prediction or a load fails."""
    figures = tmp_path / "figures.jsonl"
    _run("benchmarks/gpu/run.py", "--dry-run", "--json", str(figures))
    found = [json.loads(line) for line in figures.read_text().splitlines()]
    sections = {figure["section"] for figure in found}
    assert sections >= {"card", "limits", "start check", "load check", "batch", "ops check", "ops"}
    assert sections >= {"prediction check", "prediction", "graph check", "elapsed"}
    checks = [figure for figure in found if "ok" in figure]
    assert [check for check in checks if not check["ok"]] == []
    # What is served wrongly would show: another adapter changes far more than a check in float32 lets pass.
    exact = [check for check in checks if "adapters_change" in check and check["dtype"] == "float32"]
    changes = [check["adapters_change"] / check["tolerance"] for check in exact]
    assert min(changes) > 3
