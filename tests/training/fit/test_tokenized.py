"""What a tokenizer loses of inputs and targets is told before the first step."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from peltier_backbone.backbone import Backbone
from peltier_training.config.preparation import prepare
from peltier_training.config.task_options import TextOptions
from peltier_training.fit.tokenized import TokenizedTexts

from tests.training.conftest import MakeRun
from tests.training.service.conftest import jsonl

Read = Callable[..., TokenizedTexts]


@pytest.fixture
def read(make_run: MakeRun, t5: Backbone, tmp_path: Path) -> Read:
    """The texts of a text to text on the small T5, with these training rows."""

    def read(rows: Sequence[Mapping[str, Any]], **changes: Any) -> TokenizedTexts:
        (tmp_path / "rows.jsonl").write_bytes(jsonl(rows))
        own: dict[str, Any] = {"task_type": "text2text", "preset": "lora", "backbone": t5.name, **changes}
        run = make_run(own.pop("task_type"), own.pop("preset"), **own)
        return TokenizedTexts(prepare(replace(run, data=replace(run.data, train=tmp_path / "rows.jsonl"))))

    return read


def _rows(*labels: str) -> list[dict[str, str]]:
    return [{"text": f"film {number}", "label": label} for number, label in enumerate(labels)]


def test_targets_that_cannot_be_written_are_counted(read: Read):
    """With the characters that they lose, and what is learned in the place of the first one."""
    texts = read(_rows('{"a": 1}', "<b>", "{}\n", "good", "a film"))
    (told,) = texts.warnings()
    assert told.startswith("Targets that the tokenizer cannot write: 3 of 25, of which 1 become empty; they lose '")
    assert all(repr(character) in told for character in '{}:<>\n"')
    assert told.endswith("""; '{"a": 1}' is learned and answered as 'a 1'.""")


@pytest.mark.parametrize("label", ["good </s>", " good", "good film\n", "<pad>"])
def test_a_target_with_a_special_token_or_other_spaces_is_told(read: Read, label: str):
    """An answer is without them."""
    texts = read(_rows(label, "good"))
    assert [target.text for target in texts.unwritable] == [label]


def test_targets_that_are_cut_are_told(read: Read):
    """By the number of tokens that the run was given; without one the longest target fits."""
    labels = ("a good film", "good", "a very good film is a very good film")
    (told,) = read(_rows(*labels), text=TextOptions(max_new_tokens=8)).warnings()
    assert told == "Targets with more than 8 tokens, whose rest is not learned: 1 of 23; the longest has 11."
    assert list(read(_rows(*labels)).warnings()) == []


def test_inputs_that_are_cut_are_told_however_few(read: Read):
    """One in a hundred is one that is answered by its beginning."""
    rows = [*_rows(*["good"] * 99), {"text": "film " * 40, "label": "bad"}]
    (told,) = read(rows, max_length=16).warnings()
    assert told == "Inputs with more than 16 tokens, whose rest is not read: 1 of 100; the longest has 42."


def test_a_template_with_the_tasks_name_counts(read: Read):
    """It is read with each input."""
    rows = _rows("good", "bad")
    plain = read(rows, text=TextOptions(task_prefix=False)).inputs
    prefixed = read(rows, text=TextOptions(task_prefix=True)).inputs
    assert prefixed.longest > plain.longest


def test_inputs_of_unknown_characters_are_told(read: Read):
    """With the characters that are alike to the model."""
    rows = [{"text": '{"film"} <good>', "label": "good"}, {"text": "film", "label": "bad"}]
    (told,) = read(rows).warnings()
    assert "of the tokens of the inputs stand for characters that the tokenizer does not know" in told
    assert told.endswith(""" such as '"', '{', '}', '<', '>'.""")


def test_an_unknown_word_in_a_hundred_is_usual(read: Read):
    """Such as a face in a message."""
    rows = [*[{"text": "a very good film", "label": "good"}] * 30, {"text": "a film ☃", "label": "bad"}]
    assert list(read(rows).warnings()) == []


def test_an_encoder_has_no_targets(read: Read, bert: Backbone):
    """Its labels are not written by tokens."""
    texts = read(_rows("negative", "positive"), task_type="classification", preset="lora", backbone=bert.name)
    assert (texts.targets, texts.target_lengths) == ((), None)
