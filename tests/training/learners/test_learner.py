"""What a trained model answers."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from peltier_adapters.batch.row import RowOutput
from peltier_training.config.run import Run
from peltier_training.data.examples import Example
from peltier_training.evaluate import evaluation
from peltier_training.train import train

MakeRun = Callable[..., Run]


def test_gates_are_recorded_for_the_report_alone(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch):
    """The final evaluation records them; metrics on other examples do without."""
    recorded: list[bool] = []

    def forward(*given: Any, record_gates: bool) -> Sequence[RowOutput]:
        recorded.append(record_gates)
        return original(*given, record_gates=record_gates)

    original = evaluation.forward
    monkeypatch.setattr(evaluation, "forward", forward)
    result = train(make_run("classification", "unipelt-apl", epochs=1))
    assert result.report.gates is not None
    assert recorded.count(True) > 0
    recorded.clear()
    assert result.measure([Example("a good film", "positive", "d:1")])["accuracy"] in (0.0, 1.0)
    assert recorded == [False]
