"""Budgets in minutes, on a clock that counts steps."""

import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from peltier_backbone import load
from peltier_backbone.linear.linear import PlainLinear
from peltier_training.config.preparation import prepare
from peltier_training.config.run import Run
from peltier_training.fit.schedule import budget_entry, find_budget_decay, is_over, rate_factor
from peltier_training.service.callbacks import Deadline
from peltier_training.service.request import Budget
from peltier_training.train import finish, learn
from safetensors.numpy import load_file
from transformers import TrainerCallback, TrainerControl, TrainerState, TrainingArguments

from tests.training.conftest import MakeRun, keep_checkpoints


class StepClock(TrainerCallback):
    """A clock on which every step takes `seconds`."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self.now = seconds, 100.0

    def on_step_end(self, args: Any, state: TrainerState, control: TrainerControl, **_: Any) -> None:
        self.now += self._seconds

    def __call__(self) -> float:
        return self.now


def _walk(run: Run, *, minutes: float, max_steps: int, steps: int) -> tuple[TrainerState, TrainerControl]:
    """The state after so many steps of a second each, three in an epoch."""
    clock, state, control = StepClock(1), TrainerState(max_steps=max_steps), TrainerControl()
    deadline, args = Deadline(run, Budget(minutes=minutes), 0.0, clock), TrainingArguments(use_cpu=True, report_to=[])
    deadline.on_train_begin(args, state, control)
    for step in range(1, steps + 1):
        state.global_step, state.epoch = step, step / 3
        clock.on_step_end(args, state, control)
        deadline.on_step_end(args, state, control)
    return state, control


@pytest.mark.parametrize("given", [{"epochs": 20}, {"epochs": 20, "open_end": True, "patience": 5}])
def test_the_rate_falls_to_0_within_the_minutes(make_run: MakeRun, given: dict[str, Any]):
    """From three quarters of them on, from what it was to 0, whether or not the end is open."""
    run = make_run(**given)
    state, control = _walk(run, minutes=20 / 60, max_steps=60, steps=15)
    assert not control.should_training_stop
    log = state.log_history
    assert log == [budget_entry(15, 5.0, 20)]
    factors = [rate_factor(run, log, step, 0, 60) for step in (15, 16, 19, 20, 21)]
    first = 1.0 if run.hyperparameters.open_end else 0.75
    assert factors == pytest.approx([first * share for share in (1, 0.8, 0.2, 0, 0)])
    assert not is_over(run, [*log, {"step": 19, "eval_accuracy": 1.0}])
    assert is_over(run, [*log, {"step": 20, "eval_accuracy": 1.0}])


def test_a_schedule_that_ends_in_time_stays(make_run: MakeRun):
    """Its rate is 0 before the minutes are used up."""
    state, control = _walk(make_run(epochs=6), minutes=20 / 60, max_steps=18, steps=17)
    assert not state.log_history
    assert not control.should_training_stop


@pytest.mark.slow
def test_a_run_within_minutes_resumes_exactly(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """From a checkpoint in its decay: the log has its end, whatever the speed is then."""
    monkeypatch.setattr(load, "choose_linear", lambda *_: PlainLinear)  # the choice by time may differ from run to run
    monkeypatch.setattr(StepClock, "on_save", keep_checkpoints(kept := tmp_path / "kept"), raising=False)
    run, minutes = make_run(epochs=12), 26 / 60
    whole, ending = _train(run, minutes, StepClock(1), 0.0)
    assert ending == "the budget of 0.433333 minutes is used up"
    for late in (24, 26):
        shutil.rmtree(kept / f"checkpoint-{late}")
    shutil.rmtree(run.directory)
    shutil.copytree(kept, run.directory)
    again, ending = _train(replace(run, resume=True), minutes, StepClock(0.1), 21.0)
    assert ending == "the budget of 0.433333 minutes is used up"
    assert all(np.array_equal(again[name], tensor) for name, tensor in whole.items())


def _train(run: Run, minutes: float, clock: StepClock, spent: float) -> tuple[dict[str, Any], str]:
    """The artifact's tensors, and why it ended. Steps 20 to 26 are the decay."""
    deadline = Deadline(run, Budget(minutes=minutes), spent, clock)
    learned = learn(prepare(run), (clock, deadline))
    decay = find_budget_decay(learned.history.log)
    assert (decay.start, decay.end, learned.history.log[-1]["step"]) == (20, 26, 26)
    finish(learned)
    return load_file(run.output), deadline.explain(learned.history).ending
