"""After which epochs a training is measured."""

import pytest
from peltier_training.validation_interval import ValidationInterval
from transformers import TrainerControl, TrainerState, TrainingArguments


@pytest.mark.parametrize(
    ("epochs", "validated"),
    [
        (1, [1]),
        (5, [1, 2, 3, 4, 5]),
        (20, list(range(1, 21))),
        (21, [*range(2, 21, 2), 21]),
        (60, list(range(3, 61, 3))),
    ],
)
def test_a_run_validates_at_most_twenty_times(tmp_path, epochs: int, validated: list[int]):
    """After every epoch of a short run, and always after the last; what is not measured is not saved."""
    args = TrainingArguments(output_dir=str(tmp_path), num_train_epochs=epochs, use_cpu=True, report_to=[])
    found = []
    for epoch in range(1, epochs + 1):
        control = TrainerControl(should_evaluate=True, should_save=True)
        ValidationInterval().on_epoch_end(args, TrainerState(epoch=float(epoch)), control)
        assert control.should_save is control.should_evaluate
        found += [epoch] if control.should_evaluate else []
    assert found == validated
