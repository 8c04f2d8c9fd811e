"""The memory that a process can have."""

from pathlib import Path

from peltier_backbone.machine.memory import available_bytes, total_bytes


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
