"""The next batch reuses memory that a batch has freed."""

import ctypes
import subprocess
import sys
from types import SimpleNamespace

import pytest
from peltier_backbone.machine import heap
from peltier_backbone.machine.heap import give_back_freed_memory, keep_freed_memory

HAS_MALLOPT = sys.platform == "linux" and hasattr(ctypes.CDLL(None), "mallopt")

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_ARENA_MAX = -1, -3, -8  # of <malloc.h>


class LittleLibrary:
    """A C library that notes how its heap is set, and takes no threshold over `max_threshold`."""

    def __init__(self, max_threshold: int = 2**31, trimmed: int = 1) -> None:
        self.max_threshold, self.trimmed = max_threshold, trimmed
        self.set = dict[int, int]()
        self.kept_at_ends = list[int]()

    def mallopt(self, parameter: int, value: int) -> int:
        if parameter == M_MMAP_THRESHOLD and value > self.max_threshold:
            return 0
        self.set[parameter] = value
        return 1

    def malloc_trim(self, pad: int) -> int:
        self.kept_at_ends.append(pad)
        return self.trimmed


def use(library: object, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets the heap be that of another C library on Linux."""
    monkeypatch.setattr(heap, "ctypes", SimpleNamespace(CDLL=lambda _: library))
    monkeypatch.setattr(heap, "sys", SimpleNamespace(platform="linux"))


@pytest.mark.parametrize(("max_threshold", "largest"), [(2**31, 2**30), (2**25, 2**25)], ids=["glibc-2.35", "older"])
def test_freed_memory_is_kept_in_one_heap(max_threshold: int, largest: int, monkeypatch: pytest.MonkeyPatch):
    """Blocks as large as the library allows come from the heap; of its free end 1 GiB stays."""
    use(library := LittleLibrary(max_threshold), monkeypatch)
    assert keep_freed_memory()
    assert library.set == {M_MMAP_THRESHOLD: largest, M_TRIM_THRESHOLD: 2**30, M_ARENA_MAX: 1}


@pytest.mark.parametrize("trimmed", [0, 1])
def test_all_that_is_free_is_given_back(trimmed: int, monkeypatch: pytest.MonkeyPatch):
    """No part of it is kept; the caller learns whether there was any."""
    use(library := LittleLibrary(trimmed=trimmed), monkeypatch)
    assert give_back_freed_memory() == bool(trimmed)
    assert library.kept_at_ends == [0]


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


@pytest.mark.slow  # The gate reads how the heap is set, above.
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


@pytest.mark.slow  # The gate reads how the heap is set, above.
@pytest.mark.skipif(not HAS_MALLOPT, reason="this C library has no mallopt")
def test_what_is_kept_can_be_given_back():
    """So that others than the heap can have it where memory is short."""
    command = [sys.executable, "-c", _GIVING_BACK]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    kept, left = map(int, done.stdout.split())
    # glibc takes 128 KiB more than it is asked for, and a part of that may have been there before.
    assert kept >= 64_000_000 - 2 * 128 * 1024
    assert left < 1_000_000


def test_another_c_library_is_left_alone(monkeypatch: pytest.MonkeyPatch):
    """And the caller is told."""
    use(object(), monkeypatch)
    assert not keep_freed_memory()
    assert not give_back_freed_memory()
