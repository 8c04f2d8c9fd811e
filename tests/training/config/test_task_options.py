"""Options of a T5 and of embeddings are checked."""

import math
import subprocess
import sys
from typing import Any

import pytest
from peltier_training.config.task_options import TEMPLATES, TextOptions, find_template
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
    assert TextOptions().resolved("classification", task_prefix=True) == TextOptions(task_prefix=True, answer="score")
    given = TextOptions(task_prefix=False, answer="generate", num_beams=2)
    assert given.resolved("classification", task_prefix=True) == given


@pytest.mark.parametrize(
    ("chosen", "inputs", "template"),
    [
        ("sst2", "single", "sentence: {text}"),
        ("stsb", "pair", "sentence1: {text} sentence2: {pair}"),
        ("mnli", "pair", "premise: {text} hypothesis {pair}"),  # without its second colon (docs/methods.md#templates)
        ("qnli", "pair", "question: {text} sentence: {pair}"),
        ("superglue-copa", "triple", "premise: {text} choice1: {pair} choice2: {third}"),
        ("superglue-record", "triple", "record query: {text} entities: {pair} passage: {third}"),
        (None, "single", "{text}"),
        (None, "pair", "sentence1: {text} sentence2: {pair}"),
        (None, "triple", "sentence1: {text} sentence2: {pair} sentence3: {third}"),
        ("translate: {text}", "single", "translate: {text}"),
    ],
)
def test_a_template_is_a_published_one_or_written_out(chosen, inputs, template):
    """By its name (docs/methods.md#tasks-as-text); without a choice a single text as it is, more of them numbered."""
    assert find_template(chosen, inputs) == template


def test_what_is_neither_is_refused():
    with pytest.raises(
        TrainingError, match=r"template 'sts-b' has no \{text\} in it and is not a known name: cola, sst2"
    ):
        find_template("sts-b", "pair")


def test_every_known_template_has_its_text():
    assert all("{text}" in template for template in TEMPLATES.values())


def test_sizes_are_checked_without_assert_statements():
    """`python -O` removes them."""
    code = (
        "from peltier_training.config.task_options import EmbeddingOptions\n"
        "EmbeddingOptions(matryoshka='abc').check('embedding')"
    )
    done = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True)
    assert "TrainingError: matryoshka is 'abc'; it must be numbers of dimensions" in done.stderr
