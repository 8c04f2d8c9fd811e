"""The texts that a T5 reads."""

import pytest
from peltier_training.config.templates import TEMPLATES, find_template
from peltier_training.errors import TrainingError


def test_published_templates_are_found_by_name():
    """As docs/methods.md#tasks-as-text has them, MNLI without its second colon (docs/methods.md#templates)."""
    assert find_template("sst2", "single") == "sentence: {text}"
    assert find_template("stsb", "pair") == "sentence1: {text} sentence2: {pair}"
    assert find_template("mnli", "pair") == "premise: {text} hypothesis {pair}"
    assert find_template("qnli", "pair") == "question: {text} sentence: {pair}"
    assert find_template("superglue-copa", "triple") == "premise: {text} choice1: {pair} choice2: {third}"
    assert find_template("superglue-record", "triple") == "record query: {text} entities: {pair} passage: {third}"


def test_without_a_choice_the_inputs_decide():
    """A single text as it is, more of them numbered."""
    assert find_template(None, "single") == "{text}"
    assert find_template(None, "pair") == "sentence1: {text} sentence2: {pair}"
    assert find_template(None, "triple") == "sentence1: {text} sentence2: {pair} sentence3: {third}"


def test_a_template_can_be_written_out():
    """Anything with the text in it."""
    assert find_template("translate: {text}", "single") == "translate: {text}"


def test_what_is_neither_is_refused():
    """With the names that there are."""
    with pytest.raises(
        TrainingError, match=r"template 'sts-b' has no \{text\} in it and is not a known name: cola, sst2"
    ):
        find_template("sts-b", "pair")


def test_every_known_template_has_its_text():
    """Names are no templates."""
    assert all("{text}" in template for template in TEMPLATES.values())
