"""The interval between validations, and what a run prints."""

import io
import re
import sys
from typing import Any

import pytest
from peltier_training.config.preparation import prepare
from peltier_training.fit import schedule
from peltier_training.fit.callbacks import Validations, recent_loss
from peltier_training.train import learn
from transformers import TrainerControl, TrainerState, TrainingArguments

from tests.training.conftest import COMPACTER, MakeRun, Train, Trained


@pytest.mark.parametrize(
    ("interval", "epochs", "validated"),
    [(None, 3, [1, 2, 3]), (None, 40, list(range(1, 41))), (2, 5, [2, 4, 5]), (3, 9, [3, 6, 9]), (7, 3, [3])],
)
def test_a_run_validates_at_its_interval(make_run, tmp_path, interval, epochs, validated):
    """After every epoch where none is set, and always after the last; what is not measured is not saved."""
    callback = Validations(make_run(epochs=epochs, validation_interval=interval))
    args = TrainingArguments(output_dir=str(tmp_path), num_train_epochs=epochs, use_cpu=True, report_to=[])
    found = []
    for epoch in range(1, epochs + 1):
        control = TrainerControl(should_evaluate=True, should_save=True)
        callback.on_epoch_end(args, TrainerState(epoch=float(epoch)), control)
        assert control.should_save is control.should_evaluate
        found += [epoch] if control.should_evaluate else []
    assert found == validated


LINE = re.compile(
    r"epoch (\d)/2  step (\d)/6  loss \d\.\d{4}  (\w+) \d\.\d{4}  rate \d\.\de[+-]\d\d  \d+\.\d s(  best)?"
)


@pytest.mark.parametrize(
    ("family", "preset", "options"),
    [("bert", "compacter", COMPACTER), ("bert", "full", {}), ("t5", "lora", {}), ("t5", "full", {})],
)
def test_an_epoch_is_a_line(trained: Train, family: str, preset: str, options: dict[str, Any]):
    """The preflight, two lines of what is about to be done, one an epoch and the reason for the end, whatever is
    trained; nothing else is said anywhere, and none but the preflight is wider than a terminal."""
    done = trained(family, "classification", preset, **options)
    assert done.out == ""
    preflight, length, device, *epochs, end = done.err.splitlines()
    assert preflight.startswith("48 rows to train on and 20 to validate on were checked.")
    assert length.startswith("training on 48 rows: 2 epochs, 6 steps, batch size 16, learning rate ")
    assert device == "on cpu in float32, CPU threads: 1"
    assert end == "ended after epoch 2: the given epochs are done"
    found = [LINE.fullmatch(line) for line in epochs]
    assert [(match and match.group(1, 2, 3)) for match in found] == [("1", "3", "accuracy"), ("2", "6", "accuracy")]
    assert found[0].group(4) == "  best"  # the first is the best so far
    assert max(map(len, done.err.splitlines()[1:])) <= 80


def test_a_run_with_an_open_end_prints_its_phases(make_run, capsys, monkeypatch):
    """The last epoch is unknown until the learning rate falls, and the last line says why training ended."""
    monkeypatch.setattr(schedule, "LEAST_STEPS", 0)
    learn(prepare(make_run(epochs=30, patience=1, open_end=True, learning_rate=1e-5)))
    _preflight, *lines = capsys.readouterr().err.splitlines()
    assert lines[:2] == [
        "training on 48 rows, batch size 16, learning rate 1e-05",
        "until accuracy has not improved in 1 validation, at most 30 epochs, 90 steps",
    ]
    assert [line.split("  ")[0] for line in lines[3:]] == [
        "epoch 1",
        "epoch 2/3",
        "no better accuracy: the rate falls to 0 until epoch 3, step 9",
        "epoch 3/3",
        "ended after epoch 3: no better accuracy in 1 validation",
    ]


def test_a_resumed_run_says_where_it_begins(twice: Trained):
    """Its lines are those of its own epochs."""
    _preflight, first, _, *epochs, _ = twice.err.splitlines()
    assert "6 steps, from step 3 on, batch" in first
    assert [line.split("  ")[:2] for line in epochs] == [["epoch 2/2", "step 6/6"]]


class Terminal(io.StringIO):
    """Standard error as a person's terminal."""

    def isatty(self) -> bool:
        return True


def test_a_terminal_has_a_bar_that_goes_away(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch):
    """It shows the steps, and the lines that stay are those of a file."""
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr(sys, "stderr", terminal := Terminal())
    learn(prepare(make_run()))
    assert "| step 0/6" in terminal.getvalue()
    kept = [line for line in re.split(r"[\r\n]", terminal.getvalue()) if line.strip() and "|" not in line]
    assert [line.split("  ")[0] for line in kept[1:]] == [
        "training on 48 rows: 2 epochs, 6 steps, batch size 16, learning rate 0.003",
        "on cpu in float32, CPU threads: 1",
        "epoch 1/2",
        "epoch 2/2",
        "ended after epoch 2: the given epochs are done",
    ]
    assert terminal.getvalue().endswith("\r")  # the bar is gone


def test_a_loss_is_the_mean_of_its_steps():
    """Entries count as many steps as they stand for; those before the last evaluation but one are not of this epoch."""
    log = [
        {"step": 2, "loss": 8.0}, {"step": 3, "loss": 5.0}, {"step": 3, "eval_accuracy": 0.5},
        {"step": 5, "loss": 4.0}, {"step": 6, "loss": 1.0}, {"step": 6, "eval_accuracy": 0.6},
    ]  # fmt: skip
    assert recent_loss(log) == pytest.approx((2 * 4 + 1) / 3)
    assert recent_loss(log[:3]) == pytest.approx((2 * 8 + 5) / 3)
    assert recent_loss([*log, {"step": 9, "eval_accuracy": 0.6}]) is None
