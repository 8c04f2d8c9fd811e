"""Crashes of a real PostgreSQL under three servers."""

import runpy
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.mark.postgres
@pytest.mark.alone  # the two seconds after which no revoked key is accepted are the promise
def test_crashes_of_the_database_leave_nothing_behind(bert_directory: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of five crashes, the last one with the data of the one before, none leaves a replica that refuses changes,
    answers with another version than the registry says, or accepts a revoked key."""
    monkeypatch.syspath_prepend(BENCHMARKS)
    found = runpy.run_path(str(BENCHMARKS / "crashes.py"))["measure"](str(bert_directory), 5, seed=1)
    assert [{fault for fault, numbers in one.faults.items() if numbers} for one in found] == [set()] * 5
