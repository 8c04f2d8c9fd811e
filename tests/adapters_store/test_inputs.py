"""Inputs of tasks that read tokens are rows with offsets."""

import pytest
from peltier_adapters.answers.entities import join_windows
from peltier_adapters.errors import InputError
from peltier_adapters.inputs import LongTexts, encode_input, encode_windows
from peltier_adapters.spec.tasks import SPAN_LABELS, TaskSpec
from peltier_backbone.backbone import Backbone
from torch import zeros

TAGS = TaskSpec(type="token-classification", labels=("O", "B-x", "I-x"), inputs="single", max_length=8)
SPAN = TaskSpec(type="span", labels=SPAN_LABELS, inputs="pair", max_length=12)


def test_a_text_of_one_window_is_one_row(bert: Backbone):
    """With a stride or without; its offsets are those of the text."""
    for stride in (None, 2):
        (row,) = encode_windows(bert, TAGS, "a good film", LongTexts(stride=stride))
        assert row == encode_input(bert, TAGS, "a good film")
        assert row.offsets[1:-1] == ((0, 1), (2, 6), (7, 11))


def test_a_long_text_is_truncated_or_read_in_windows(bert: Backbone):
    """All rows have at most the task's length; only without a stride is something dropped."""
    (row,) = encode_windows(bert, TAGS, "a " * 20)
    assert (len(row), row.num_dropped) == (8, 14)
    rows = encode_windows(bert, TAGS, "a " * 20, LongTexts(stride=2))
    assert [len(row) for row in rows] == [8, 8, 8, 8, 6]
    assert not any(row.truncated for row in rows)


def test_windows_of_a_padded_task_are_padded(bert: Backbone):
    """Each to the task's length."""
    rows = encode_windows(bert, TAGS.model_copy(update={"padded": True}), "a " * 8, LongTexts(stride=2))
    assert [(len(row), row.pads, len(row.words)) for row in rows] == [(8, 0, 8), (8, 2, 8)]


def test_a_context_is_read_in_windows(bert: Backbone):
    """Its question is in each of them."""
    rows = encode_windows(bert, SPAN, ("good film", "a " * 20), LongTexts(stride=3))
    assert {row.types for row in rows[:-1]} == {(0,) * 4 + (1,) * 8}
    assert rows[-1].offsets[-2] == (38, 39)


@pytest.mark.parametrize("stride", [None, 2])
def test_what_would_be_dropped_is_refused(stride: int | None, bert: Backbone):
    """If the caller forbids truncation: more characters than are read, or more tokens than fit."""
    with pytest.raises(InputError, match="the input has a text of 40 characters; at most 10 are read"):
        encode_windows(bert, TAGS, "a " * 20, LongTexts(truncate=False, stride=stride, max_chars=10))
    with pytest.raises(InputError, match="the input has 25 tokens; this task takes at most 12"):
        encode_windows(bert, SPAN, ("a " * 20, "good film"), LongTexts(truncate=False, stride=stride))


@pytest.mark.parametrize("text", ["\x00", "\u200b", "\U0001f600", "[SEP] [CLS]", "a\u0301" * 5])
def test_any_unicode_has_places(text: str, bert: Backbone):
    """Also a text of which the tokenizer reads nothing."""
    (row,) = encode_windows(bert, TAGS, text, LongTexts(stride=2))[:1]
    tokens = join_windows([row], [zeros(len(row), 3)])
    assert len(tokens.offsets) == len(tokens.words) == len(tokens.values)
    assert all(0 <= start < end <= len(text) for start, end in tokens.offsets)
