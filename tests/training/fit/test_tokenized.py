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


LABELS = ("a good film", "good", "a very good film is a very good film")
USUAL = [{"text": "a very good film", "label": "good"}] * 30
WARNINGS: dict[str, tuple[list[dict[str, str]], dict[str, Any], list[str]]] = {
    "cut targets": (
        _rows(*LABELS), {"text": TextOptions(max_new_tokens=8)},
        ["Targets with more than 8 tokens, whose rest is not learned: 1 of 23; the longest has 11."],
    ),
    "the longest target fits": (_rows(*LABELS), {}, []),
    "one cut input in a hundred": (
        [*_rows(*["good"] * 99), {"text": "film " * 40, "label": "bad"}], {"max_length": 16},
        ["Inputs with more than 16 tokens, whose rest is not read: 1 of 100; the longest has 42."],
    ),
    "characters that are alike to the model": (
        [{"text": '{"film"} <good>', "label": "good"}, {"text": "film", "label": "bad"}], {},
        [
            "of the tokens of the inputs stand for characters that the tokenizer does not know, which are all alike to "
            """the model, such as '"', '{', '}', '<', '>'."""
        ],
    ),
    "an unknown word in a hundred": ([*USUAL, {"text": "a film ☃", "label": "bad"}], {}, []),
}  # fmt: skip


@pytest.mark.parametrize("case", WARNINGS)
def test_what_is_cut_or_unknown_is_told(read: Read, case: str):
    """However few inputs are cut; an unknown word in a hundred, such as a face in a message, is usual."""
    rows, changes, ends = WARNINGS[case]
    told = list(read(rows, **changes).warnings())
    assert [line[-len(end) :] for line, end in zip(told, ends, strict=True)] == ends


def test_a_template_with_the_tasks_name_counts(read: Read):
    """It is read with each input."""
    rows = _rows("good", "bad")
    plain = read(rows, text=TextOptions(task_prefix=False)).inputs
    prefixed = read(rows, text=TextOptions(task_prefix=True)).inputs
    assert prefixed.longest > plain.longest


def test_an_encoder_has_no_targets(read: Read, bert: Backbone):
    """Its labels are not written by tokens."""
    texts = read(_rows("negative", "positive"), task_type="classification", preset="lora", backbone=bert.name)
    assert (texts.targets, texts.target_lengths) == ((), None)
