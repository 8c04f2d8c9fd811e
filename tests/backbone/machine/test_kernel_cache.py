"""The memory that new numbers of tokens take permanently."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from peltier_backbone.machine import kernel_cache
from peltier_backbone.machine.kernel_cache import _MAX_PREPARED, bound_kernel_caches

from tests.support.levels import NEEDS_ONEDNN

# A product that torch has prepared takes 0.65 MiB: two descriptors of 258,376 bytes each, code, and what lies between.
_BOUND_MIB = _MAX_PREPARED * 0.75
# Less than 16 prepared products would take.
_NOTHING_MIB = 8
# As many sizes, each new, as show what is kept, on a model whose products take no time.
_PROGRAM = """
import sys
from pathlib import Path
import torch
from peltier_backbone.linear.linear import PlainLinear
from peltier_backbone.load import load_backbone
from peltier_backbone.linear.linear import NativeLinear

def resident_mib():
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096 / 2**20

torch.set_num_threads(1)
load_backbone(sys.argv[1])
kernel = {"torch": PlainLinear, "native": NativeLinear}[sys.argv[2]]
maps = [kernel(torch.randn(size, 64).bfloat16(), torch.randn(size).bfloat16()) for size in (64, 128, 256)]
x = torch.randn(300, 64).bfloat16()
with torch.inference_mode():
    for one in maps:
        one(x)
    start = resident_mib()
    for tokens in range(1, 300):
        for one in maps:
            one(x[:tokens])
print(resident_mib() - start)
"""

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's /proc")


def grown_mib(backbone: Path, kernel: str, **environment: str) -> float:
    """What a process has grown by after products of 299 numbers of tokens with three weights."""
    command = [sys.executable, "-c", _PROGRAM, str(backbone), kernel]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, env={**os.environ, **environment})
    assert done.returncode == 0, done.stderr[-3000:]
    return float(done.stdout)


@pytest.mark.parametrize("own", [{}, {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "7"}, {"LRU_CACHE_CAPACITY": "7"}], ids=list)
def test_the_bounds_are_set_where_the_environment_has_none(own, monkeypatch):
    """oneDNN and torch read them there."""
    environment = dict(own)
    monkeypatch.setattr(kernel_cache, "os", SimpleNamespace(environ=environment))
    bound_kernel_caches()
    assert environment == {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "256", "LRU_CACHE_CAPACITY": "8"} | own


@pytest.mark.slow  # The gate reads the bounds, in the test above and in `tests/server/limits`.
def test_new_numbers_of_tokens_take_bounded_memory(bert_directory: Path) -> None:
    """Loading a backbone bounds what oneDNN and torch keep."""
    assert grown_mib(bert_directory, "torch") < _BOUND_MIB


@pytest.mark.slow  # as the test that it belongs to
@NEEDS_ONEDNN
def test_the_bounds_of_onednn_and_torch_would_let_it_grow(bert_directory: Path) -> None:
    """The same process outgrows the bound with theirs."""
    own = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "4096", "LRU_CACHE_CAPACITY": "4096"}
    assert grown_mib(bert_directory, "torch", **own) > _BOUND_MIB


@pytest.mark.slow
def test_native_products_keep_nothing(bert_directory: Path) -> None:
    assert grown_mib(bert_directory, "native") < _NOTHING_MIB
