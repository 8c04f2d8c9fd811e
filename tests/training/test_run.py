"""What a run refuses before it reads any data or weight."""

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from peltier_training.errors import TrainingError
from peltier_training.run import Data, Hyperparameters, Run


def create_run(tmp_path: Path, **changes: Any) -> Run:
    data = Data(tmp_path / "no.jsonl", tmp_path / "no.jsonl", ("text",), "label")
    own: dict[str, Any] = {"task": "toy", "task_type": "classification", "preset": "lora", "backbone": "none"}
    return Run(**(own | {"data": data, "output": tmp_path / "toy.safetensors", "directory": tmp_path} | changes))


@pytest.mark.parametrize(
    ("name", "value", "rule"),
    [
        ("epochs", 0, "epochs is 0; it must be a number of at least 1"),
        ("batch_size", -1, "batch_size is -1; it must be a number of at least 1"),
        ("max_length", 2, "max_length is 2; it must be a number of at least 3"),
        ("seed", -1, "seed is -1; it must be a number of at least 0"),
        ("seed", 2**32, "seed is 4294967296; it must be at most 4294967295"),
        ("warmup", 1.0, "dropout is 0.1 and warmup 1.0; both are fractions below 1"),
        ("warmup", math.nan, "warmup is nan; it must be a number of at least 0.0"),
        ("dropout", 1.0, "dropout is 1.0 and warmup 0.06; both are fractions below 1"),
        ("dropout", -0.1, "dropout is -0.1; it must be a number of at least 0.0"),
        ("weight_decay", math.inf, "weight_decay is inf; it must be a number of at least 0.0"),
        ("learning_rate", 0.0, "learning_rate is 0.0; it must be a number above 0"),
        ("learning_rate", math.nan, "learning_rate is nan; it must be a number above 0"),
        ("learning_rate", math.inf, "learning_rate is inf; it must be a number above 0"),
    ],
)
def test_impossible_numbers_are_refused(name: str, value: float, rule: str):
    """The sentence names the setting, its value and its bound."""
    with pytest.raises(TrainingError) as refused:
        replace(Hyperparameters(), **{name: value}).check()
    assert str(refused.value) == rule


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"task": "../x"}, "task '../x' is not a name"),
        ({"task": "a\n"}, "task 'a\\n' is not a name"),
        (
            {"task_type": "ranking"},
            "task type 'ranking' is unknown; it is one of classification, multilabel, regression",
        ),
        (
            {"hyperparameters": Hyperparameters(metric="pearson")},
            "metric 'pearson' is not one of classification's: acc",
        ),
        (
            {"output": Path("nowhere/x.safetensors")},
            "output nowhere/x.safetensors cannot be written: its folder does not",
        ),
        ({"output": Path("/tmp")}, "output /tmp cannot be written: it is a folder"),  # noqa: S108 - never written
    ],
)
def test_an_impossible_run_is_refused(tmp_path: Path, changes: dict[str, Any], rule: str):
    """Name, task type, metric and output are checked first."""
    with pytest.raises(TrainingError) as refused:
        create_run(tmp_path, **changes).check()
    assert str(refused.value).startswith(rule)


def test_the_preset_has_a_learning_rate_of_its_own(tmp_path: Path):
    """It is used where none is given."""
    assert create_run(tmp_path, preset="compacter").learning_rate == 3e-3
    assert create_run(tmp_path, hyperparameters=Hyperparameters(learning_rate=0.1)).learning_rate == 0.1


def test_the_task_type_has_a_metric_of_its_own(tmp_path: Path):
    """The best epoch is chosen by it where none is given."""
    assert create_run(tmp_path, task_type="regression").metric == "pearson"
    assert create_run(tmp_path, hyperparameters=Hyperparameters(metric="f1")).metric == "f1"
