"""One trial, in this process."""

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from peltier_training.errors import TrainingError
from peltier_training.report.report import Report
from peltier_training.sweep import worker
from peltier_training.sweep.sweep import Sweep
from peltier_training.train import TrainingResult

MakeSweep = Callable[..., Sweep]


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_metric_that_is_no_number_is_a_failure(
    make_sweep: MakeSweep, tables: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, value: float
):
    """A line of JSON cannot hold it, and a mean would hide it."""
    report = Report.model_construct(metrics={"accuracy": 0.5, "f1_macro": value}, merging=None)
    monkeypatch.setattr(worker, "train", lambda run: TrainingResult(report, None, None))
    with pytest.raises(TrainingError, match=f"f1_macro is {value} on the validation rows"):
        worker.run_trial(make_sweep(tables).trials[0], tmp_path)
