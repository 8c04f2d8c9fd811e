"""From examples to what the Trainer draws."""

import pytest
from peltier_adapters.inputs import encode_input
from peltier_adapters.spec.parts import PromptSpec
from peltier_adapters.spec.tasks import DecodingSpec, TaskSpec
from peltier_backbone.backbone import Backbone
from peltier_training.data.examples import Example
from peltier_training.data.rows import head_rows, text_rows
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
    """On either family."""
    headed = TaskSpec(type="classification", labels=("a", "b"), inputs="pair", max_length=16)
    for make in (
        lambda: text_rows(t5, TASK, (), [Example(("a", "b"), "c", "d:7")]),
        lambda: head_rows(bert, headed, [Example("a", "b", "d:7")]),
    ):
        with pytest.raises(TrainingError, match="d:7: the input is "):
            make()
