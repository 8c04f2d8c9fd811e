"""Entities are those of transformers' pipeline, whole or in windows."""

from collections.abc import Iterator
from dataclasses import replace
from functools import cache
from typing import Any, get_args

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peltier_adapters.answers.entities import AggregationStrategy, TextTokens, find_entities, join_windows, tag_row
from peltier_adapters.answers.tags import split_tag
from peltier_adapters.batch.row import Row, RowOutput
from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_backbone.text.packing import Encoded
from torch import Tensor
from transformers import AutoTokenizer, BertConfig, BertForTokenClassification, TokenClassificationPipeline

LABELS = ("O", "B-person", "I-person", "B-creative-work", "I-creative-work")
TEXTS = (
    "Barack Obama's visit to Wolverhampton, naïve café 東京 on the Empire State Building of Jyväskylä",
    "unbelievably antidisestablishmentarianism-ish http://bit.ly/bgCyZ0 #photography 5€ \U0001f600 x",
    "a",
)


@cache
def _pipeline() -> Any:
    config = BertConfig(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16, initializer_range=0.5,
        id2label=dict(enumerate(LABELS)), label2id={label: number for number, label in enumerate(LABELS)},
    )  # fmt: skip
    torch.manual_seed(0)
    tokenizer = AutoTokenizer.from_pretrained(find_checkpoint("minilm"))
    return TokenClassificationPipeline(model=BertForTokenClassification(config).eval(), tokenizer=tokenizer)


@torch.inference_mode()
def _logits(row: Encoded) -> Tensor:
    logits: Tensor = _pipeline().model(torch.tensor([row.ids])).logits[0]
    return logits


def _tags(row: Encoded) -> Tensor:
    return tag_row(Row(row), RowOutput(_logits(row))).tags


@pytest.mark.parametrize("aggregation", get_args(AggregationStrategy))
@pytest.mark.parametrize("text", TEXTS)
def test_entities_equal_those_of_the_pipeline(text: str, aggregation: AggregationStrategy, minilm: Backbone):
    """Characters and labels are equal, and scores to 1e-6."""
    (row,) = minilm.tokenizer.read_windows(text, max_tokens=128).rows()
    found = find_entities(LABELS, join_windows([row], [_tags(row)]), aggregation)
    expected = _pipeline()(text, aggregation_strategy=aggregation)
    label = "entity" if aggregation == "none" else "entity_group"
    assert [one[:3] for one in found] == [(one["start"], one["end"], one[label]) for one in expected]
    assert [one.score for one in found] == pytest.approx([float(one["score"]) for one in expected], abs=1e-6)


@given(num_words=st.integers(1, 40), stride=st.integers(0, 5))
def test_windows_join_to_the_tokens_of_the_text(num_words: int, stride: int, minilm: Backbone):
    """Each token of the text occurs once and in order, with the logits of one of its windows."""
    text = " ".join(("unbelievably", "good", "isn't")[number % 3] for number in range(num_words))
    (whole,) = minilm.tokenizer.read_windows(text, max_tokens=512).rows()
    rows = minilm.tokenizer.read_windows(text, max_tokens=12, stride=stride).rows()
    logits = [
        torch.tensor([[float(start), float(number)] for start, _ in row.offsets]) for number, row in enumerate(rows)
    ]
    joined = join_windows(rows, logits)
    assert tuple(joined.offsets) == whole.offsets[1:-1]
    assert tuple(joined.words) == whole.words[1:-1]
    assert joined.values[:, 0].tolist() == [start for start, _ in joined.offsets]
    assert joined.values[:, 1].tolist() == sorted(joined.values[:, 1].tolist())


def test_a_word_in_two_windows_is_taken_from_one(minilm: Backbone):
    """The cut is between words, near the middle of the shared tokens."""
    rows = minilm.tokenizer.read_windows("good Jyväskylä " * 4, max_tokens=14, stride=6).rows()
    joined = join_windows(rows, [torch.full((len(row), 1), float(number)) for number, row in enumerate(rows)])
    windows: dict[int, set[float]] = {}
    for word, (window,) in zip(joined.words, joined.values.tolist(), strict=True):
        windows.setdefault(word, set()).add(window)
    assert all(len(own) == 1 for own in windows.values())
    assert len(rows) > 2


def test_bilou_tags_join_like_bio():
    """A tag L continues an entity, and a tag U begins one."""
    labels = ("O", "B-x", "I-x", "L-x", "U-x")
    tags = torch.tensor([[float(tag), 0.9] * 2 for tag in (1, 2, 3, 4, 4, 0)])
    tokens = TextTokens([(2 * at, 2 * at + 1) for at in range(6)], range(6), tags)
    assert [one[:3] for one in find_entities(labels, tokens, "first")] == [(0, 5, "x"), (6, 7, "x"), (8, 9, "x")]


def test_a_text_without_words_has_no_entities():
    assert find_entities(LABELS, TextTokens([], [], torch.zeros(0, 4)), "average") == []


def test_tags_without_a_prefix_are_labels():
    """A hyphen inside a label does not make a prefix."""
    assert [split_tag(tag) for tag in ("B-creative-work", "I-x", "creative-work", "O")] == [
        (True, "creative-work"), (False, "x"), (False, "creative-work"), (False, "O"),
    ]  # fmt: skip


def test_the_end_of_a_window_is_found_once(minilm: Backbone):
    """So the work to join two windows is linear in their length."""

    class Offsets(tuple[tuple[int, int], ...]):
        num_reads = 0

        def __iter__(self) -> Iterator[tuple[int, int]]:
            Offsets.num_reads += 1
            return super().__iter__()

    text = "a quiet town by the river " * 8
    rows = [
        replace(row, offsets=Offsets(row.offsets))
        for row in minilm.tokenizer.read_windows(text, max_tokens=32, stride=8).rows()
    ]
    Offsets.num_reads = 0
    join_windows(rows, [torch.zeros(len(row), 2) for row in rows])
    assert Offsets.num_reads <= 4 * len(rows)
