"""The memory that a process can have."""

from pathlib import Path

import pytest
import torch
from peltier_backbone.machine.memory import available_bytes, is_out_of_memory, total_bytes


def test_the_smaller_of_the_memory_and_the_limit_counts(tmp_path: Path):
    """A container's limit is of all memory, and so of the free memory."""
    info, limit = tmp_path / "meminfo", tmp_path / "memory.max"
    assert (available_bytes(info, limit), total_bytes(info, limit)) == (None, None)
    info.write_text("MemTotal: 9000 kB\nMemAvailable:    4096 kB\n")
    assert (available_bytes(info, limit), total_bytes(info, limit)) == (4096 * 1024, 9000 * 1024)
    limit.write_text("max\n")
    assert (available_bytes(info, limit), total_bytes(info, limit)) == (4096 * 1024, 9000 * 1024)
    limit.write_text("1024\n")
    assert (available_bytes(info, limit), total_bytes(info, limit)) == (1024, 1024)


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("std::bad_alloc"),  # the words of topk, stack and others
        RuntimeError("could not create a primitive"),
    ],
    ids=str,
)
def test_a_lack_of_memory_has_many_words(error: BaseException):
    """Of Python, of torch on each device, of C++ and of oneDNN."""
    assert is_out_of_memory(error)


@pytest.mark.parametrize("error", [RuntimeError("a bad row"), ValueError("out of memory"), OSError("no file")], ids=str)
def test_other_errors_are_no_lack_of_memory(error: BaseException):
    """Whatever their words are."""
    assert not is_out_of_memory(error)
