"""From examples to what the Trainer draws."""

from itertools import groupby

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peltier_adapters.inputs import encode_input
from peltier_adapters.spec.parts import PromptSpec
from peltier_adapters.spec.tasks import SPAN_LABELS, DecodingSpec, TaskSpec
from peltier_backbone.backbone import Backbone
from peltier_backbone.text.packing import Encoded
from peltier_backbone.text.token_places import NOWHERE
from peltier_training.data.dataset import IGNORED, EncodedRows, QuerySampler, TextRow, collate, collate_texts
from peltier_training.data.examples import Example
from peltier_training.data.gold import GoldEntity, GoldSpan, Tagged
from peltier_training.data.rows import NO_TOKEN, find_tokens, head_rows, span_rows, tag_rows, tag_text, text_rows
from peltier_training.errors import TrainingError

TASK = TaskSpec(
    type="text2text",
    labels=(),
    inputs="single",
    max_length=32,
    template="film {text}",
    decoding=DecodingSpec(answer="generate", max_new_tokens=3),
)


def test_a_text_is_read_one_token_late(t5: Backbone):
    """The decoder reads the start and the text, and says the text and its end."""
    (row,) = [text_rows(t5, TASK, (), [Example("good", "a film", "d:1")])[0]]
    ids = t5.tokenizer.ids("a film")
    assert row.read == (t5.t5.config.start_token_id, *ids)
    assert row.labels == (*ids, t5.t5.config.eos_token_id)
    assert row.encoded == encode_input(t5, TASK, "good")


def test_soft_tokens_have_places_in_front(t5: Backbone):
    """As many as the prompt is long; a server makes the same."""
    row = text_rows(t5, TASK, (PromptSpec(length=3),), [Example("good", "a film", "d:1")])[0]
    assert row.encoded.ids == (0, 0, 0, *encode_input(t5, TASK, "good").ids)


def test_a_long_text_is_cut(t5: Backbone):
    """At what the task may answer."""
    row = text_rows(t5, TASK, (), [Example("good", "good bad good bad good", "d:1")])[0]
    assert len(row.labels) == 3 + 1


def test_what_does_not_fit_is_named_with_its_line(t5: Backbone, bert: Backbone):
    headed = TaskSpec(type="classification", labels=("a", "b"), inputs="pair", max_length=16)
    for make in (
        lambda: text_rows(t5, TASK, (), [Example(("a", "b"), "c", "d:7")]),
        lambda: head_rows(bert, headed, [Example("a", "b", "d:7")]),
    ):
        with pytest.raises(TrainingError, match="d:7: the input is "):
            make()


CONTEXT = "the plot is good , and the actor , who is very dull , is not in the film ."


def task(max_length: int = 16, stride: int | None = 4) -> TaskSpec:
    return TaskSpec(type="span", labels=SPAN_LABELS, inputs="pair", max_length=max_length, stride=stride)


def characters(row: Encoded, tokens: tuple[int, int]) -> str:
    return CONTEXT[row.offsets[tokens[0]][0] : row.offsets[tokens[1]][1]]


@pytest.mark.parametrize("answer", ["very dull", "film .", "the plot", "ctor", " and ", CONTEXT[:12]])
def test_a_target_is_where_the_answer_is(bert: Backbone, answer: str):
    """In every window that has the whole answer, in whole tokens; in the others it is the first token."""
    span = GoldSpan(CONTEXT.index(answer), answer)
    data = span_rows(bert, task(), [Example(("who ?", CONTEXT), (span,), "f:1")])
    found = [(row, (int(target[0]), int(target[1]))) for row, target in map(data.__getitem__, range(len(data)))]
    shown = {characters(row, place) for row, place in found if place != (0, 0)}
    assert shown == {"actor" if answer == "ctor" else answer.strip()}
    hidden = [[span for span in row.offsets if span != NOWHERE] for row, place in found if place == (0, 0)]
    first, last = CONTEXT.index(answer.strip()), CONTEXT.index(answer.strip()) + len(answer.strip())
    assert all(last > places[-1][1] or first < places[0][0] for places in hidden)
    assert 0 < len(hidden) < len(found)
    assert [int(data[number][1][2]) for number in range(len(data))] == [len(row) for row, _ in found]


def test_without_an_answer_every_target_is_the_first_token(bert: Backbone):
    """So it is where truncation dropped the answer."""
    dropped = Example(("who ?", CONTEXT), (GoldSpan(CONTEXT.index("film"), "film"),), "f:1")
    data = span_rows(bert, task(stride=None), [dropped, Example(("who ?", "the plot"), (), "f:2")])
    assert [data[number][1].tolist() for number in range(2)] == [[0, 0, 16], [0, 0, len(data[1][0])]]


def test_the_first_right_answer_is_the_target(bert: Backbone):
    """Others only count in the metrics."""
    answers = (GoldSpan(4, "plot"), GoldSpan(0, "the plot"))
    row, target = span_rows(bert, task(32), [Example(("who ?", "the plot is good"), answers, "f:1")])[0]
    assert find_tokens(row, answers[0]) == tuple(target[:2].tolist())


def test_an_invalid_input_is_named_with_its_line(bert: Backbone):
    with pytest.raises(TrainingError, match=r"^f:7: an input text is empty; "):
        span_rows(bert, task(), [Example((" ", CONTEXT), (), "f:7")])


TAGGING = TaskSpec(
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
    wide = TAGGING.model_copy(update={"max_length": 32})
    own = [("in", 0), ("J", 1), (",", 0), ("Wolverhampton", 1), ("#", 2), ("Helsinki", 2)]
    assert _targets(minilm, wide, _example(None)) == [own]
    assert _targets(minilm, wide, _example(SPACED)) == [[*own[:2], *own[3:5]]]


def test_a_window_does_not_tag_the_rest_of_a_word(minilm: Backbone):
    """A word that began in the window before is tagged there."""
    windows = _targets(minilm, TAGGING, _example(None))
    assert [dict(window).get("J") for window in windows] == [1, None, None]
    assert {pair for window in windows for pair in window} == {
        ("in", 0), ("J", 1), (",", 0), ("Wolverhampton", 1), ("#", 2), ("Helsinki", 2),
    }  # fmt: skip


def test_words_that_are_truncated_keep_their_tags(minilm: Backbone):
    """They count as missed in an evaluation."""
    task = TAGGING.model_copy(update={"stride": None, "max_length": 6})
    for words, tags in ((None, ("O", "B-place", "O", "B-place", "I-place", "I-place")), (SPACED, None)):
        text = tag_text(minilm, task, _example(words))
        assert len(text.rows) == 1
        assert text.tags == (tags or ("O", "B-place", "B-place", "I-place"))


def test_an_input_that_does_not_fit_is_named(minilm: Backbone):
    with pytest.raises(TrainingError, match=r"^a\.jsonl:1: an input text has a lone surrogate"):
        tag_rows(minilm, TAGGING, [_example(None, "a\ud800")])


def test_rows_stay_ragged():
    """Collating pads nothing and keeps each row by its target."""
    rows = [Encoded((1, 2), (0, 0)), Encoded((1, 3, 2), (0, 0, 0))]
    data = EncodedRows(rows, torch.tensor([4, 5]))
    batch = collate([data[1], data[0]])
    assert len(data) == 2
    assert batch["rows"] == [rows[1], rows[0]]
    assert batch["labels"].tolist() == [5, 4]


def test_texts_stay_ragged():
    """The tokens to say lie back to back, as the decoder will answer; inputs and decoder inputs stay apart."""
    one = TextRow(Encoded((1, 2), (0, 0)), (0, 7), (7, 1))
    two = TextRow(Encoded((3, 2), (0, 0)), (0, 8, 9), (8, 9, 1))
    batch = collate_texts([two, one])
    assert batch["rows"] == [two.encoded, one.encoded]
    assert batch["targets"] == [(0, 8, 9), (0, 7)]
    assert batch["labels"].tolist() == [8, 9, 1, 7, 1]


@given(queries=st.lists(st.integers(0, 5), max_size=30), seed=st.integers(0, 99), epoch=st.integers(0, 9))
def test_documents_of_a_query_are_neighbours(queries: list[int], seed: int, epoch: int):
    """Every row comes once, and every query in one run; the same seed and epoch give the same order."""
    sampler = QuerySampler(queries, seed)
    sampler.set_epoch(epoch)
    order = list(sampler)
    assert sorted(order) == list(range(len(queries))) == list(range(len(sampler)))
    runs = [query for query, _ in groupby(order, key=lambda row: queries[row])]
    assert len(runs) == len(set(queries))
    assert list(sampler) == order


def test_epochs_have_other_orders():
    """Of queries and of the documents of one."""
    queries = [number // 8 for number in range(64)]
    sampler = QuerySampler(queries, seed=0)
    first = list(sampler)
    sampler.set_epoch(1)
    assert list(sampler) != first
