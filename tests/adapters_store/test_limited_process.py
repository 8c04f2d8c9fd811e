"""Work in a process with limits of the system."""

import sys
from pathlib import Path

import pytest
from peltier_adapters.errors import AdapterError
from peltier_adapters.limited_process import run

MODULE = "tests.support.limited_work"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux limits the address space")
def test_a_process_has_no_more_memory_than_its_limit(tmp_path: Path) -> None:
    """Nor writes a larger file; what it says then reaches the caller."""
    with pytest.raises(AdapterError, match=r"^it is refused$"):
        run(MODULE, {"do": "memory"}, "a.bin", {})
    with pytest.raises(AdapterError, match=r"^File too large$"):
        run(MODULE, {"do": "file", "path": str(tmp_path / "a")}, "a.bin", {})


def test_a_process_that_does_not_end_is_ended() -> None:
    """Whether it computes or waits."""
    with pytest.raises(AdapterError, match=r"^a\.bin: the process that works on it was ended by signal 24, as when"):
        run(MODULE, {"do": "processor"}, "a.bin", {})
    with pytest.raises(AdapterError, match=r"^a\.bin is not complete after \d+ seconds, the most that it may take$"):
        run(MODULE, {"do": "wait", "seconds": 1}, "a.bin", {})


def test_a_process_inherits_no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """No key and no token of the caller."""
    monkeypatch.setenv("PELTIER_API_KEY", "secret")
    names = {*run(MODULE, {"do": "environment"}, "a.bin", {"A": "1"})}
    assert names - {"LC_CTYPE"} == {"PYTHONPATH", "A"}
