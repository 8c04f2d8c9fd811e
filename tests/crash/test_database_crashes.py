"""Crashes of a real PostgreSQL under three servers."""

from pathlib import Path

import pytest

from tests.crash.database_crashes import measure


@pytest.mark.postgres
@pytest.mark.alone  # the two seconds after which no revoked key is accepted are the promise
def test_crashes_of_the_database_leave_nothing_behind(bert_directory: Path) -> None:
    """Of five crashes, the last one with the data of the one before, none leaves a replica that refuses changes,
    answers with another version than the registry says, or accepts a revoked key."""
    found = measure(str(bert_directory), 5, seed=1)
    assert [{fault for fault, numbers in one.faults.items() if numbers} for one in found] == [set()] * 5
