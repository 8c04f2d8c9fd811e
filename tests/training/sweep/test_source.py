"""A sweep's data, read once for all trials."""

from pathlib import Path

from peltier_training.data.labelled_data import read_file
from peltier_training.sweep.description import SweepTask
from peltier_training.sweep.source import TaskData


def test_trials_skip_the_rows_that_their_sweep_skips(tmp_path: Path):
    """The names that a sweep found in the training file do not make a label of a 1 in a trial."""
    (tmp_path / "train.jsonl").write_text('{"text": "a", "label": "no"}\n{"text": "b", "label": "yes"}\n')
    (tmp_path / "validation.jsonl").write_text('{"text": "c", "label": 1}\n{"text": "d", "label": "no"}\n')
    for names, rows in ((None, ["d"]), (("no", "yes"), ["c", "d"])):
        task = SweepTask(train="train.jsonl", validation="validation.jsonl", labels=names, skip_bad_rows=True)
        data = TaskData.read(task, tmp_path).data
        found = read_file(data, data.validation, "classification", data.labels)
        assert [example.input for example in found.examples] == rows
