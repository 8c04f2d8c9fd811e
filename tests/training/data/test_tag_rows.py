"""The tags of words become targets of tokens."""

import pytest
from peltier_adapters.spec.tasks import TaskSpec
from peltier_backbone.backbone import Backbone
from peltier_training.data.dataset import IGNORED
from peltier_training.data.examples import Example
from peltier_training.data.tag_rows import NO_TOKEN, tag_rows, tag_text
from peltier_training.data.tags import GoldEntity, Tagged
from peltier_training.errors import TrainingError

TASK = TaskSpec(
    type="token-classification", labels=("O", "B-place", "I-place"), inputs="single", max_length=8, stride=4
)
TEXT = "in Jyväskylä, Wolverhampton #Helsinki"
ENTITIES = (GoldEntity(3, 12, "place"), GoldEntity(14, 37, "place"))
SPACED = ((0, 2), (3, 13), (14, 27), (28, 37))


def _example(words: tuple[tuple[int, int], ...] | None, text: str = TEXT) -> Example:
    return Example(text, Tagged(ENTITIES, words), "a.jsonl:1")


def _targets(minilm: Backbone, task: TaskSpec, example: Example) -> list[list[tuple[str, int]]]:
    """For each window, the texts of the tokens that carry a tag, and the tags."""
    rows = tag_rows(minilm, task, [example])
    found = []
    for number in range(len(rows)):
        row, target = rows[number]
        assert (target == NO_TOKEN).sum() == task.max_length - len(row)
        pairs = zip(row.offsets, target.tolist(), strict=False)
        found.append([(TEXT[start:end], tag) for (start, end), tag in pairs if tag != IGNORED])
    return found


def test_the_first_token_of_a_word_has_its_tag(minilm: Backbone):
    """The tokenizer's words, or given ones; other tokens are left out of the loss."""
    wide = TASK.model_copy(update={"max_length": 32})
    own = [("in", 0), ("J", 1), (",", 0), ("Wolverhampton", 1), ("#", 2), ("Helsinki", 2)]
    assert _targets(minilm, wide, _example(None)) == [own]
    assert _targets(minilm, wide, _example(SPACED)) == [[*own[:2], *own[3:5]]]


def test_a_window_does_not_tag_the_rest_of_a_word(minilm: Backbone):
    """A word that began in the window before is tagged there."""
    windows = _targets(minilm, TASK, _example(None))
    assert [dict(window).get("J") for window in windows] == [1, None, None]
    assert {pair for window in windows for pair in window} == {
        ("in", 0), ("J", 1), (",", 0), ("Wolverhampton", 1), ("#", 2), ("Helsinki", 2),
    }  # fmt: skip


def test_words_that_are_truncated_keep_their_tags(minilm: Backbone):
    """They count as missed in an evaluation."""
    task = TASK.model_copy(update={"stride": None, "max_length": 6})
    for words, tags in ((None, ("O", "B-place", "O", "B-place", "I-place", "I-place")), (SPACED, None)):
        text = tag_text(minilm, task, _example(words))
        assert len(text.rows) == 1
        assert text.tags == (tags or ("O", "B-place", "B-place", "I-place"))


def test_an_input_that_does_not_fit_is_named(minilm: Backbone):
    """With its line."""
    with pytest.raises(TrainingError, match=r"^a\.jsonl:1: an input text has a lone surrogate"):
        tag_rows(minilm, TASK, [_example(None, "a\ud800")])
