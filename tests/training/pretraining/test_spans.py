"""Span corruption, for any length and any draw."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from peltier_training.pretraining.spans import EOS, SpanCorruption, fit_length

FIRST_SENTINEL = 9_999
lengths = st.integers(8, 600)
seeds = st.integers(0, 2**32 - 1)


def _corrupted(corruption: SpanCorruption, seed: int) -> tuple[list[int], list[int]]:
    source, target = corruption.corrupt(np.arange(corruption.text_length), np.random.default_rng(seed))
    return source.tolist(), target.tolist()


def _spans(tokens: list[int], corruption: SpanCorruption) -> list[list[int]]:
    """What stands before, between and after the sentinels; they must be in order."""
    assert tokens[-1] == EOS
    spans: list[list[int]] = [[]]
    for token in tokens[:-1]:
        if token > FIRST_SENTINEL - corruption.num_spans:
            assert token == FIRST_SENTINEL + 1 - len(spans)
            spans.append([])
        else:
            spans[-1].append(token)
    assert len(spans) == corruption.num_spans + 1
    return spans


@given(lengths, seeds)
def test_every_token_is_in_the_input_or_in_the_target(length: int, seed: int):
    """Putting each span of the target in the place of its sentinel gives the text back."""
    corruption = fit_length(length, FIRST_SENTINEL)
    source, target = (_spans(tokens, corruption) for tokens in _corrupted(corruption, seed))
    assert target[0] == []
    pairs = zip(source, [*target[1:], []], strict=True)
    assert [token for kept, taken in pairs for token in [*kept, *taken]] == list(range(corruption.text_length))


@given(lengths, seeds)
def test_lengths_are_fixed(length: int, seed: int):
    """No draw needs padding, and no longer text would fit."""
    corruption = fit_length(length, FIRST_SENTINEL)
    source, target = _corrupted(corruption, seed)
    assert (len(source), len(target)) == (corruption.input_length, corruption.target_length)
    assert length - 1 <= corruption.input_length <= length


@given(lengths)
def test_density_and_mean_span(length: int):
    """15 % of the tokens and three a span, as near as whole numbers allow."""
    corruption = fit_length(length, FIRST_SENTINEL)
    assert abs(corruption.num_noise - 0.15 * corruption.text_length) <= 0.5
    assert abs(3 * corruption.num_spans - corruption.num_noise) <= 2


def test_the_papers_lengths():
    """Inputs of 512 tokens are of texts of 568, with targets of 114."""
    corruption = fit_length(512, 32_099)
    assert (corruption.input_length, corruption.text_length, corruption.target_length) == (512, 568, 114)


def test_every_place_is_taken_out_equally_often():
    """Away from the ends of a text each token is hidden in 15 % of the draws."""
    corruption = fit_length(128, FIRST_SENTINEL)
    draws = 2000
    hidden = np.zeros(corruption.text_length)
    for seed in range(draws):
        target = np.array(_corrupted(corruption, seed)[1][:-1])
        hidden[target[target < corruption.text_length]] += 1
    middle = hidden[20:-20] / draws
    # Five standard deviations of the mean of 0/1 draws.
    assert middle.mean() == pytest.approx(0.15, abs=0.02)
    assert np.abs(middle - middle.mean()).max() < 5 * (0.15 * 0.85 / draws) ** 0.5


def test_the_smallest_text_keeps_a_token():
    """Two tokens: one stays, one is taken out."""
    corruption = fit_length(3, FIRST_SENTINEL)
    assert _corrupted(corruption, 0) == ([0, FIRST_SENTINEL, EOS], [FIRST_SENTINEL, 1, EOS])
