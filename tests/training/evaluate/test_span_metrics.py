"""Exact match and F1 of extracted answers."""

import pytest
from peltier_training.evaluate.span_metrics import compute_spans, score_span

# As SQuAD's script scores them: https://github.com/rajpurkar/SQuAD-explorer.
CASES = [
    ("the Black Forest!", ["black  forest"], 1.0, 1.0),
    ("Black Forest", ["The Black Forest, Germany", "Alps"], 0.0, 0.8),
    ("Forest Forest", ["Forest"], 0.0, 2 / 3),
    ("", [], 1.0, 1.0),
    ("Alps", [], 0.0, 0.0),
    ("", ["Alps"], 0.0, 0.0),
    ("the", ["a"], 1.0, 1.0),
    ("naïve—café", ["naïve café"], 0.0, 0.0),
]


@pytest.mark.parametrize(("found", "gold", "exact", "f1"), CASES)
def test_an_answer_is_compared_as_squad_does(found: str, gold: list[str], exact: float, f1: float):
    """Without case, ASCII punctuation and articles, with the best of the right answers; the empty text is no answer."""
    assert score_span(found, gold) == (exact, pytest.approx(f1))


def test_metrics_are_means_over_questions():
    """From 0 to 1."""
    found, gold = [case[0] for case in CASES], [case[1] for case in CASES]
    means = compute_spans(found, gold)
    assert means["exact_match"] == sum(case[2] for case in CASES) / len(CASES)
    assert means["f1"] == pytest.approx(sum(case[3] for case in CASES) / len(CASES))
