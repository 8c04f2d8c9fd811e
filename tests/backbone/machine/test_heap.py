"""The next batch reuses memory that a batch has freed."""

import ctypes
import subprocess
import sys

import pytest
from peltier_backbone.machine.heap import give_back_freed_memory, keep_freed_memory

HAS_MALLOPT = sys.platform == "linux" and hasattr(ctypes.CDLL(None), "mallopt")

# What a batch does: blocks of some megabytes are taken, written and given back, on a thread of its own.
_PROGRAM = """
import resource, sys, threading
from peltier_backbone.machine.heap import keep_freed_memory

def batch():
    b"".join([b"x" * 16_000_000 for _ in range(5)])

def count():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    batch()
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)

def run():
    for _ in range(4):
        count()

faults = []
if sys.argv[1] == "kept":
    assert keep_freed_memory()
thread = threading.Thread(target=run)
thread.start()
thread.join()
print(faults[0], faults[-1])
"""


@pytest.mark.skipif(not HAS_MALLOPT, reason="this C library has no mallopt")
def test_a_batch_takes_the_pages_of_the_one_before():
    """The fourth of equal batches faults in a fiftieth of the first one's pages at most; left to itself it faults in a
    quarter of them and more."""
    first, last = _faults("kept")
    assert last <= first / 50
    first, last = _faults("as it is")
    assert last >= first / 4


def _faults(mode: str) -> tuple[int, int]:
    """Pages that the first and the last batch of a new process fault in."""
    command = [sys.executable, "-c", _PROGRAM, mode]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    first, last = map(int, done.stdout.split())
    return first, last


# What is kept, and then given back, of 64 MB.
_GIVING_BACK = """
import re
from pathlib import Path
from peltier_backbone.machine.heap import give_back_freed_memory, keep_freed_memory

def size():
    return 1024 * int(re.search(r"VmSize:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])

assert keep_freed_memory()
before = size()
bytes(64_000_000)
kept = size() - before
assert give_back_freed_memory()
print(kept, size() - before)
"""


@pytest.mark.skipif(not HAS_MALLOPT, reason="this C library has no mallopt")
def test_what_is_kept_can_be_given_back():
    """So that others than the heap can have it where memory is short."""
    command = [sys.executable, "-c", _GIVING_BACK]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    kept, left = map(int, done.stdout.split())
    # glibc takes 128 KiB more than it is asked for, and a part of that may have been there before.
    assert kept >= 64_000_000 - 2 * 128 * 1024
    assert left < 1_000_000


@pytest.mark.skipif(HAS_MALLOPT, reason="this C library has mallopt")
def test_another_c_library_is_left_alone():
    """And the caller is told."""
    assert not keep_freed_memory()
    assert not give_back_freed_memory()
