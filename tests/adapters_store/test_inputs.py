"""Inputs of tasks that read tokens are rows with offsets."""

import pytest
from peltier_adapters.answers.entities import join_windows
from peltier_adapters.errors import InputError
from peltier_adapters.inputs import LongTexts, encode_input, encode_known, encode_windows
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


@pytest.mark.parametrize("text", ["a\x00", "\u200ba", "\U0001f600", "[SEP] [CLS]", "a\u0301" * 5])
def test_any_unicode_has_places(text: str, bert: Backbone):
    """Also characters of which the tokenizer reads nothing."""
    (row,) = encode_windows(bert, TAGS, text, LongTexts(stride=2))[:1]
    tokens = join_windows([row], [zeros(len(row), 3)])
    assert len(tokens.offsets) == len(tokens.words) == len(tokens.values)
    assert all(0 <= start < end <= len(text) for start, end in tokens.offsets)


@pytest.mark.parametrize("text", ["\u200b", "\u00ad", "\ufeff", "\x00", "\u3164", "\ufe0f", " \u200d\u2060\n"])
@pytest.mark.parametrize("backbone", ["bert", "roberta", "t5"])
def test_a_text_of_invisible_characters_is_refused(text: str, backbone: str, request: pytest.FixtureRequest):
    """As an empty one, alone, in a template, and as any text of a pair, whatever the tokenizer makes of it."""
    reader: Backbone = request.getfixturevalue(backbone)
    words = "an input text is empty; every text must have at least one visible character"
    single = TaskSpec(type="classification", labels=("a", "b"), inputs="single", max_length=16)
    pair = single.model_copy(update={"inputs": "pair"})
    tasks = [(single, text), (pair, (text, "a")), (pair, ("a", text)), (TAGS, text), (SPAN, ("a", text))]
    for task, value in [*tasks, (single.model_copy(update={"template": "sst2: {text}"}), text)]:
        with pytest.raises(InputError, match=words):
            encode_input(reader, task, value)
    assert encode_known(reader, single, text) is None


@pytest.mark.parametrize("blank", [" " * 10, "\n" * 10, "\u200b" * 10])
def test_a_text_that_begins_with_invisible_characters_is_not_called_empty(blank: str, bert: Backbone):
    """If none of those that are read is visible; one text, a pair, and windows."""
    words = "the first 10 characters of an input text, all that are read of it, have none that is visible"
    single = TaskSpec(type="classification", labels=("a", "b"), inputs="single", max_length=16)
    pair = single.model_copy(update={"inputs": "pair"})
    for task, value in [(single, blank + "a"), (pair, ("a", blank + "a")), (TAGS, blank + "a")]:
        with pytest.raises(InputError, match=words):
            encode_input(bert, task, value, max_chars=10)
    for text in (blank, blank[1:] + "\u200b\n"):
        with pytest.raises(InputError, match="an input text is empty"):
            encode_input(bert, single, text, max_chars=10)
    assert encode_input(bert, single, blank[1:] + "a", max_chars=10)


def test_a_text_without_tokens_is_refused(bert: Backbone, roberta: Backbone):
    """BERT's tokenizer drops accents and characters of private use; others read them."""
    for text in ("\u0301", "\ue000", "\ufffd"):
        with pytest.raises(InputError, match="an input text has no tokens: the backbone's tokenizer drops all of its"):
            encode_input(bert, TAGS, text)
        with pytest.raises(InputError, match="an input text has no tokens"):
            encode_input(bert, SPAN, ("a", text))
        assert len(encode_input(bert, TAGS, f"a{text}")) == 3
        assert encode_input(roberta, TAGS, text)
