"""Real lack of memory: a separate process with a memory limit."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from peltier_client.errors import InferenceFailed, Unavailable
from peltier_server.runner.isolation import blame

from tests.support.levels import NEEDS_ONEDNN

# Two shortages, one after the other; oneDNN knows the sizes of all batches but one before. The limits come from what
# the process has by then, and from the most that it ever had, which is what the pass of all rows needs.
_PROGRAM = """
import json, random, re, resource, sys
from pathlib import Path
import torch
from peltier_adapters.batch.choice import choose_runner
from peltier_adapters.batch.row import Row
from peltier_backbone import load
from peltier_backbone.linear.linear import PlainLinear
from peltier_backbone.text.packing import Encoded
from peltier_client.errors import PeltierError
from peltier_server.runner import isolation
from peltier_server.runner.isolation import ComputeGuard

torch.set_num_threads(1)
load.choose_linear = lambda *_: PlainLinear  # its products in bfloat16 are those of oneDNN
backbone = load.load_backbone(sys.argv[1], dtype="bfloat16")
computing = isolation.Bisection(backbone, choose_runner(backbone), ComputeGuard())
forward, passes = isolation.forward, []

def counted(backbone, rows, **options):
    passes.append(len(rows))
    return forward(backbone, rows, **options)

def compute(rows):
    passes.clear()
    return computing.compute(rows, record_gates=False)

def size(which="VmSize"):
    return 1024 * int(re.search(which + r":\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

def limit(num_bytes):
    resource.setrlimit(resource.RLIMIT_AS, (num_bytes, resource.RLIM_INFINITY))

def row(num_tokens):
    return Row(Encoded(tuple(random.randrange(10, 60) for _ in range(num_tokens)), (0,) * num_tokens))

def values(outputs):
    return [output.logits.tolist() for output in outputs]

def equal(outputs, expected):
    return torch.allclose(torch.tensor(values(outputs)), torch.tensor(expected), atol=2**-5)

isolation.forward = counted
random.seed(0)
rows = [row(64) for _ in range(512)]
for power in range(10):
    compute(rows[: 2**power])
expected = values(compute(rows))
needed = size("VmPeak") - size()

limit(size() + needed * 3 // 4)
halved = {"equal": equal(compute(rows), expected), "passes": passes[:]}
limit(resource.RLIM_INFINITY)

# A gap inside of the heap, enough for a small row, but not for code, which needs mappings of its own.
blocks = [torch.empty(2**15, dtype=torch.uint8) for _ in range(256)]
del blocks[:-1]
limit(size() - 2**23)
new, known = compute([row(51)]), compute(rows[:1])
lacking = {"answers": [type(one).__name__ for one in new], "next equal": equal(known, expected[:1])}
limit(resource.RLIM_INFINITY)
print(json.dumps({"needed": needed, "halved": halved, "lacking": lacking}))
"""

_LIMITED = pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's limits")


@pytest.fixture(scope="module")
def shortages(bert_directory: Path) -> dict[str, Any]:
    """What the program found."""
    # A tensor is then a mapping of its own, so that what a pass needs does not hang on what the heap has free.
    environment = {**os.environ, "MALLOC_MMAP_THRESHOLD_": "65536"}
    command = [sys.executable, "-c", _PROGRAM, str(bert_directory)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=400, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
@_LIMITED
def test_a_batch_too_large_for_the_memory_is_answered_in_halves(shortages: dict[str, Any]) -> None:
    """Each row as without the shortage, and no half smaller than it has to be: three quarters of what all need are
    enough for a half."""
    assert shortages["halved"]["equal"]
    assert shortages["halved"]["passes"] == [512, 256, 256]


@pytest.mark.slow  # the test below stays, which reads the words of oneDNN
@_LIMITED
@NEEDS_ONEDNN
def test_a_row_without_memory_for_code_may_come_back(shortages: dict[str, Any]) -> None:
    """It is the memory's fault and not the input's; the next row, whose code is there, is answered."""
    assert shortages["lacking"] == {"answers": ["Unavailable"], "next equal": True}


def test_a_size_that_is_refused_is_no_lack_of_memory() -> None:
    """oneDNN's words for it begin as those for a lack of memory do."""
    words = "could not create a primitive"
    assert isinstance(blame(RuntimeError(words)), Unavailable)
    assert isinstance(blame(RuntimeError(f"{words} descriptor for the matmul primitive.")), InferenceFailed)
