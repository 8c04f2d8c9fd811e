"""What makes two trials the same."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from peltier_training.config.run import Hyperparameters
from peltier_training.config.task_options import EmbeddingOptions
from peltier_training.sweep.trial import Trial

MakeTrial = Callable[..., Trial]

DECIDING: dict[str, dict[str, Any]] = {
    "task": {"task": "other"},
    "size": {"size": 5},
    "dev rows": {"dev_rows": 5},
    "seed": {"seed": 1},
    "preset": {"preset": "lora"},
    "dtype": {"dtype": "bfloat16"},
    "device": {"device": "cpu"},
    "data": {"evidence": {"train": "9"}},
    "validation": {"evidence": {"validation": "9"}},
    "backbone": {"evidence": {"backbone": "9"}},
    "settings": {"evidence": {"settings": {"n": 2}}},
    "embedding": {"embedding": EmbeddingOptions(projection=8)},
    "hyperparameters": {"hyperparameters": Hyperparameters(epochs=1)},
}


@pytest.mark.parametrize("change", DECIDING.values(), ids=DECIDING)
def test_what_decides_the_outcome_is_in_the_key(make_trial: MakeTrial, change: dict[str, Any]):
    """A trial with another of these is another trial."""
    assert make_trial(**change).key != make_trial().key


def test_what_decides_nothing_is_not_in_the_key(make_trial: MakeTrial):
    """A renamed method, a moved file and another folder do not run a trial again."""
    trial = make_trial()
    moved = replace(trial.run, data=replace(trial.run.data, train=Path("there.jsonl")), output=Path("x.safetensors"))
    assert replace(trial, run=moved, method="mine", axes={"n": "4"}).key == trial.key


@dataclass(frozen=True)
class Newer(Hyperparameters):
    """What a later version may have."""

    momentum: float | None = None


def test_an_option_that_is_left_out_is_not_in_the_key(make_trial: MakeTrial):
    """A version with one more hyper-parameter still knows the trials of an earlier one."""
    assert make_trial(hyperparameters=Newer()).key == make_trial().key
    assert make_trial(hyperparameters=Newer(momentum=0.9)).key != make_trial().key


def test_a_name_says_where_on_the_grid(make_trial: MakeTrial):
    assert make_trial(size=100, seed=2, axes={"n": "4"}).name == "toy, compacter, n 4, 100 rows, seed 2"
