"""The file of results, as crashes and other sweeps find it."""

from collections.abc import Callable
from pathlib import Path

import pytest
from peltier_training.errors import TrainingError
from peltier_training.sweep.ledger import Ledger
from peltier_training.sweep.trial import Trial, TrialResult

MakeEntry = Callable[..., tuple[Trial, TrialResult]]


def test_what_was_appended_is_there_again(make_entry: MakeEntry, tmp_path: Path):
    """Each result under its trial's key, a failure too; of two with one key the last counts."""
    (_, one), (_, failed) = make_entry(0.25), make_entry(failure="it broke", seed=1)
    later = one.model_copy(update={"seconds": 9.0})
    with Ledger.open(tmp_path / "results.jsonl") as ledger:
        for result in (one, failed, later):
            ledger.append(result)
    with Ledger.open(tmp_path / "results.jsonl") as ledger:
        assert ledger.results == {one.key: later, failed.key: failed}


def test_a_line_that_a_crash_cut_off_is_dropped(make_entry: MakeEntry, tmp_path: Path):
    """Its trial counts as not run, and the next line stands on its own."""
    path, (_, result) = tmp_path / "results.jsonl", make_entry()
    line = result.model_dump_json() + "\n"
    path.write_text(line + line[:40])
    with Ledger.open(path) as ledger:
        ledger.append(result)
    assert path.read_text() == line + line


def test_a_second_sweep_is_refused(tmp_path: Path):
    """Two writers would train everything twice."""
    path, refusal = tmp_path / "results.jsonl", pytest.raises(TrainingError, match="another sweep is writing to")
    with Ledger.open(path), refusal, Ledger.open(path):
        pass


def test_another_file_of_that_name_is_refused(tmp_path: Path):
    """And it stays as it is."""
    path = tmp_path / "results.jsonl"
    path.write_text('{"text": "a good film"}\n')
    with pytest.raises(TrainingError, match=r"results.jsonl:1 is not a result of a sweep"), Ledger.open(path):
        pass
    assert path.read_text() == '{"text": "a good film"}\n'
