"""What a T5 may be asked."""

import math
from typing import Any

import pytest
from peltier_training.config.text_options import TextOptions
from peltier_training.errors import TrainingError


@pytest.mark.parametrize(
    ("options", "task_type", "rule"),
    [
        ({"max_new_tokens": 0}, "text2text", "max_new_tokens is 0; it must be from 1 to 4096"),
        ({"num_beams": 17}, "text2text", "num_beams is 17; it must be from 1 to 16"),
        ({"completion_temperature": 2.1}, "text2text", "completion_temperature is 2.1; it must be from 0 to 2"),
        ({"completion_temperature": math.nan}, "text2text", "completion_temperature is nan; it must be from 0 to 2"),
        ({"regression_step": 0.0}, "regression", "regression_step is 0.0; it must be a number above 0"),
        ({"regression_step": math.nan}, "regression", "regression_step is nan; it must be a number above 0"),
        ({"answer": "sing"}, "classification", "answer is 'sing'; it must be 'score' or 'generate'"),
        ({"answer": "score"}, "text2text", "answer 'score' needs labels; text2text has none"),
        ({"targets": "words"}, "regression", "targets is for classification; the task type is regression"),
        ({"targets": "a,b"}, "text2text", "targets is for classification; the task type is text2text"),
        ({"regression_step": 0.5}, "classification", "regression_step is for regression; the task type is class"),
    ],
)
def test_impossible_options_are_refused(options: dict[str, Any], task_type: Any, rule: str):
    """Values out of their bounds, and options that this type of task has no use for."""
    with pytest.raises(TrainingError) as refused:
        TextOptions(**options).check(task_type)
    assert str(refused.value).startswith(rule)


def test_what_is_given_is_known():
    """A flag that says no is given too."""
    assert TextOptions().given == []
    assert TextOptions(task_prefix=False, num_beams=1).given == ["task_prefix", "num_beams"]


def test_defaults_wait_for_the_preset():
    """What was given stays."""
    assert TextOptions().resolved("classification", task_prefix=True) == TextOptions(task_prefix=True, answer="score")
    given = TextOptions(task_prefix=False, answer="generate", num_beams=2)
    assert given.resolved("classification", task_prefix=True) == given
