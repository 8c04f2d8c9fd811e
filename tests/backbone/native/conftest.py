"""The native libraries that this processor can run."""

from pathlib import Path

import pytest
import torch
from peltier_backbone.native import library
from peltier_backbone.native.library import Library

_FOLDER = Path(library.__file__).parent
_RUNS_HERE = {"AVX512": ("amx", "avx512_bf16", "avx512", "avx2", "plain"), "AVX2": ("avx2", "plain")}


@pytest.fixture(scope="module", params=_RUNS_HERE.get(torch.backends.cpu.get_cpu_capability(), ("plain",)))
def native(request: pytest.FixtureRequest) -> Library:
    """Each of them in turn."""
    path = _FOLDER / f"{request.param}.so"
    if not path.exists():
        pytest.skip(f"the compiler did not build {path.name}")
    found = Library(path)
    if not found.runs:
        pytest.skip("this processor does not run this library")
    return found
