"""After which epochs a training is measured."""

from collections.abc import Callable
from pathlib import Path

import pytest
from peltier_training.config.run import Run
from peltier_training.fit.validation_interval import ValidationInterval
from transformers import TrainerControl, TrainerState, TrainingArguments

MakeRun = Callable[..., Run]


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
