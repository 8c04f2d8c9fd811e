"""What runs trials, chosen by name."""

import sys

import pytest
from peltier_training.errors import TrainingError
from peltier_training.sweep.executor import EXECUTORS, open_executor


@pytest.mark.parametrize("name", EXECUTORS)
def test_nobody_runs_nothing(name: str):
    """Workers are counted from one, whatever runs them."""
    with pytest.raises(TrainingError, match="workers is 0; it must be a number of at least 1"):
        open_executor(name, "cpu", 0).__enter__()


def test_without_ray_the_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    """As a sentence that says what to install."""
    monkeypatch.delitem(sys.modules, "peltier_training.sweep.ray_runner", raising=False)
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(TrainingError, match=r"executor 'ray' needs Ray: pip install \"peltier\[training,ray\]\""):
        open_executor("ray", "cpu", 1).__enter__()
