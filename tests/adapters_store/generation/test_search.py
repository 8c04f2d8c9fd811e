"""Greedy lines, seeded samples and beams over a toy language whose probabilities are known."""

import math
from itertools import product

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peltier_adapters.batch.row import Row
from peltier_adapters.generation.generation import create_draft
from peltier_adapters.generation.search import Beams, Decoding, Line
from peltier_backbone.backbone import Backbone
from torch import Tensor

START, END, VOCABULARY = 0, 1, 5


def _log_probs(text: list[int], seed: int) -> Tensor:
    """The toy language's next-token log-probabilities, [vocab]."""
    generator = torch.Generator().manual_seed(hash((seed, *text)) % 2**31)
    return torch.randn(VOCABULARY, generator=generator).log_softmax(-1)


def _run_line(decoding: Decoding, language: int = 0) -> Line:
    line = Line(decoding, START, END)
    while line.finish is None:
        assert line.advance(_log_probs(line.ids, language)[None]) is None
    return line


def _run_beams(decoding: Decoding, language: int) -> Beams:
    beams, texts = Beams(decoding, START, END), [[] for _ in range(decoding.num_beams)]
    while beams.finish is None:
        sources = beams.advance(torch.stack([_log_probs(text, language) for text in texts]))
        texts = [[*texts[source], token] for source, token in zip(sources or [], beams.tokens, strict=True)]
    return beams


def test_greedy_takes_the_likeliest_token():
    """Step by step, and its score is the sum of what it took."""
    line, text, total = _run_line(Decoding(6)), [], 0.0
    while len(text) < 6:
        values = _log_probs(text, 0)
        total += float(values.max())
        if int(values.argmax()) == END:
            break
        text.append(int(values.argmax()))
    assert line.ids == text
    assert line.log_prob == pytest.approx(total, abs=1e-5)


def test_a_text_ends_at_its_end_or_its_limit():
    """The end token is not part of the text; the limit is."""
    line = Line(Decoding(2), START, END)
    line.append(3, -1.0)
    assert (line.finish, line.tokens) == (None, [3])
    line.append(END, -0.5)
    assert (line.finish, line.ids, line.log_prob) == ("stop", [3], -1.5)
    line = Line(Decoding(1), START, END)
    line.append(3, -1.0)
    assert (line.finish, line.ids) == ("length", [3])


def test_a_seed_decides_a_sample():
    """The same seed draws the same text; others draw others."""
    texts = {seed: tuple(_run_line(Decoding(8, temperature=1.0, seed=seed)).ids) for seed in range(20)}
    assert texts == {seed: tuple(_run_line(Decoding(8, temperature=1.0, seed=seed)).ids) for seed in range(20)}
    assert len(set(texts.values())) > 5


def test_samples_follow_the_probabilities():
    """First tokens of 4,000 draws are within five standard deviations of the language's own frequencies."""
    draws = 4000
    expected = _log_probs([], 0).exp()
    counts = torch.zeros(VOCABULARY)
    for seed in range(draws):
        line = Line(Decoding(1, temperature=1.0, seed=seed), START, END)
        line.advance(_log_probs([], 0)[None])
        counts[line.ids[0] if line.ids else END] += 1
    deviation = (expected * (1 - expected) / draws).sqrt()
    assert bool(((counts / draws - expected).abs() < 5 * deviation).all())


@given(st.integers(0, 1000), st.floats(0.01, 0.99))
def test_top_p_draws_from_the_likeliest_tokens_alone(seed: int, top_p: float):
    """A token is drawn only if those likelier than it do not already hold top_p."""
    line = Line(Decoding(1, temperature=1.0, top_p=top_p, seed=seed), START, END)
    values = _log_probs([], 3)
    line.advance(values[None])
    drawn = line.ids[0] if line.ids else END
    likelier = float(values.exp()[values > values[drawn]].sum())
    assert likelier < top_p + 1e-6


@given(st.integers(0, 300))
def test_beams_that_hold_every_text_find_the_best(language: int):
    """With beams for all texts the winner is the one of the highest mean log-probability, by exhaustive search."""
    length = 2
    best = -math.inf
    for text in product(range(VOCABULARY), repeat=length):
        cut = list(text[: text.index(END) + 1]) if END in text else list(text)
        score = sum(float(_log_probs(cut[:k], language)[token]) for k, token in enumerate(cut)) / len(cut)
        best = max(best, score)
    beams = _run_beams(Decoding(length, num_beams=VOCABULARY), language)
    steps = len(beams.ids) + (beams.finish == "stop")
    assert beams.log_prob / steps == pytest.approx(best, abs=1e-5)


@pytest.mark.parametrize("num_beams", [1, 3])
@pytest.mark.parametrize(("length", "finish"), [(2, "stop"), (4, "length")])
def test_a_score_counts_every_token_and_the_end(num_beams: int, length: int, finish: str, t5: Backbone):
    """Where every step has the same probability, that is the score of a text, whether it ends by itself or is cut."""
    draft = create_draft(t5, Row(t5.tokenizer.encode("bad")), Decoding(4, num_beams=num_beams))
    end = t5.t5.config.eos_token_id
    for step in range(4):
        log_probs = torch.full((num_beams, VOCABULARY + 4), -9.0)
        log_probs[:, end if finish == "stop" and step >= length else 5] = -0.5
        draft.search.advance(log_probs)
        if draft.finish is not None:
            break
    assert (draft.ids, draft.finish) == ([5] * length, finish)
    assert draft.search.log_prob == pytest.approx(-0.5 * (length + (finish == "stop")))
    assert draft.score == pytest.approx(math.exp(-0.5))
