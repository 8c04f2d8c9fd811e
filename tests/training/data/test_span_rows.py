"""Windows of contexts, and where their answers are."""

import pytest
from peltier_adapters.spec.tasks import SPAN_LABELS, TaskSpec
from peltier_backbone.backbone import Backbone
from peltier_backbone.text.packing import Encoded
from peltier_backbone.text.token_places import NOWHERE
from peltier_training.data.examples import Example
from peltier_training.data.gold_spans import GoldSpan
from peltier_training.data.span_rows import find_tokens, span_rows
from peltier_training.errors import TrainingError

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
    """As for every other type of task."""
    with pytest.raises(TrainingError, match=r"^f:7: an input text is empty; "):
        span_rows(bert, task(), [Example((" ", CONTEXT), (), "f:7")])
