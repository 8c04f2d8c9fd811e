"""Early stopping, and the interval between validations."""

from collections.abc import Callable
from pathlib import Path

import pytest
from peltier_training.config.run import Run
from peltier_training.fit.callbacks import ValidationInterval, is_over
from transformers import TrainerControl, TrainerState, TrainingArguments

MakeRun = Callable[..., Run]
MakeRun = Callable[..., Run]


@pytest.mark.parametrize(
    ("patience", "scores", "over"),
    [
        (2, [], False),
        (2, [0.5, 0.9, 0.3], False),
        (2, [0.5, 0.9, 0.3, 0.9], True),  # as good is no better
        (2, [0.5, 0.9, 0.3, 0.95, 0.1], False),
        (2, [0.9, 0.1, 0.1, 0.1], True),
        (None, [0.9] + 50 * [0.1], False),
    ],
)
def test_patience_counts_from_the_best_epoch(make_run: MakeRun, patience: int | None, scores: list[float], over: bool):
    """On the metric that chooses it; other entries of the log are not epochs."""
    run = make_run(patience=patience)
    log = [entry for score in scores for entry in ({"loss": 1.0}, {"eval_accuracy": score})]
    assert is_over(run, log) is over


def test_less_loss_is_better(make_run: MakeRun):
    """Metrics that fall as answers get better are read so."""
    log = [{"eval_mse": value} for value in (0.5, 0.4, 0.3)]
    assert not is_over(make_run("regression", metric="mse", patience=1), log)
    assert is_over(make_run("regression", metric="mse", patience=1), log[::-1])


@pytest.mark.parametrize(
    ("interval", "epochs", "validated"),
    [(None, 3, [1, 2, 3]), (None, 40, list(range(1, 41))), (2, 5, [2, 4, 5]), (3, 9, [3, 6, 9]), (7, 3, [3])],
)
def test_a_run_validates_at_its_interval(
    make_run: MakeRun, tmp_path: Path, interval: int | None, epochs: int, validated: list[int]
):
    """After every epoch where none is set, and always after the last; what is not measured is not saved."""
    callback = ValidationInterval(make_run(epochs=epochs, validation_interval=interval))
    args = TrainingArguments(output_dir=str(tmp_path), num_train_epochs=epochs, use_cpu=True, report_to=[])
    found = []
    for epoch in range(1, epochs + 1):
        control = TrainerControl(should_evaluate=True, should_save=True)
        callback.on_epoch_end(args, TrainerState(epoch=float(epoch)), control)
        assert control.should_save is control.should_evaluate
        found += [epoch] if control.should_evaluate else []
    assert found == validated
