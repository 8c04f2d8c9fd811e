"""Answers to questions, from the scores of tokens."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peltier_adapters.answers.spans import SpanAnswer, best_span
from peltier_adapters.spec.tasks import SpanSpec
from peltier_backbone.backbone import Backbone
from peltier_backbone.text.packing import Encoded
from torch import Tensor

# What the question-answering pipeline of transformers 4.57.1 answers with MiniLM's tokenizer and a model whose logits
# are those of `drawn`. transformers 5 has no such pipeline.
RECORDED = json.loads(Path(__file__).with_name("pipeline_answers.json").read_text())


def drawn(rows: tuple[Encoded, ...], case: dict[str, Any]) -> list[tuple[Encoded, Tensor]]:
    """The rows with random logits; `bonus` is added to those of the first token."""
    generator = np.random.default_rng(case["seed"])
    found = [torch.tensor(generator.normal(size=(len(row), 2)) * 3).float() for row in rows]
    for logits in found:
        logits[0] += case["bonus"]
    return list(zip(rows, found, strict=True))


@pytest.mark.parametrize("case", RECORDED["cases"], ids=lambda case: str(case["seed"]))
def test_an_answer_is_that_of_transformers_pipeline(minilm: Backbone, case: dict[str, Any]):
    """Characters and score, in one window or several, with and without the choice of no answer."""
    question, context = RECORDED["inputs"][case["pair"]]
    rows = minilm.tokenizer.read_windows(
        question, context, max_tokens=case["max_length"], stride=RECORDED["stride"]
    ).rows()
    spec = SpanSpec(max_answer_length=case["max_answer_length"], no_answer=case["no_answer"])
    found = best_span(context, drawn(rows, case), spec)
    assert found[1:] == (case["start"], case["end"], pytest.approx(case["score"], abs=1e-6))
    assert found.answer == context[case["start"] : case["end"]]


def windows(minilm: Backbone, context: str, answer: str, stride: int | None = None) -> list[tuple[Encoded, Tensor]]:
    """The windows of a context, in which the first and the last token of `answer` are by far the likeliest; those of
    an empty answer are the first token."""
    rows, start = (
        minilm.tokenizer.read_windows("what ?", context, max_tokens=16, stride=stride).rows(),
        context.index(answer),
    )
    found = [torch.zeros(len(row), 2) for row in rows]
    for row, logits in zip(rows, found, strict=True):
        for place, (first, last) in enumerate(row.offsets):
            logits[place, 0] = 20.0 * (first == start and last > first)
            logits[place, 1] = 20.0 * (last == start + len(answer) and last > first)
        logits[0] = 20.0 * (not answer)
    return list(zip(rows, found, strict=True))


def test_the_score_of_a_text_in_two_windows_is_a_probability(minilm: Backbone):
    """The most probable window counts. transformers adds the windows, which gives nearly 2 here."""
    context = "in the hills of the north the little river rises before it turns to the sea"
    spans = windows(minilm, context, "river rises", stride=5)
    shown = [row for row, logits in spans if logits.max() > 0]
    assert len(shown) == 2
    answer = best_span(context, spans, SpanSpec(max_answer_length=5))
    assert (answer.answer, answer.score) == ("river rises", pytest.approx(1.0, abs=1e-6))


def test_raw_scores_are_logits(minilm: Backbone):
    """The sum of the logits of the first and the last token; for no answer both are those of the window's first
    token."""
    context = "the river rises here"
    open_end = SpanSpec(no_answer=True)
    found = best_span(context, windows(minilm, context, "river rises"), open_end, raw_scores=True)
    assert found == SpanAnswer("river rises", 4, 15, 40.0)
    nothing = windows(minilm, context, "")
    assert best_span(context, nothing, open_end, raw_scores=True) == SpanAnswer("", 0, 0, 40.0)
    assert best_span(context, nothing, SpanSpec(), raw_scores=True).end > 0


def test_an_answer_has_at_most_its_tokens(minilm: Backbone):
    """A longer span is not an answer, however likely its ends are."""
    context = "the river rises here in the hills"
    spans = windows(minilm, context, "river rises here in the")
    whole = best_span(context, spans, SpanSpec(max_answer_length=5))
    assert whole.answer == "river rises here in the"
    short = best_span(context, spans, SpanSpec(max_answer_length=4))
    assert 0 < len(short.answer.split()) <= 4
    assert short.score < 1e-6


def test_without_a_token_of_the_context_there_is_no_answer(minilm: Backbone):
    """The tokenizer may drop all characters of a context."""
    rows = minilm.tokenizer.read_windows("what ?", "\x07", max_tokens=16).rows()
    found = [(row, torch.zeros(len(row), 2)) for row in rows]
    assert best_span("\x07", found, SpanSpec()) == ("", 0, 0, pytest.approx(1.0))
