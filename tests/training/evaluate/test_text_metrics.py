"""Metrics of texts against values worked out by hand and the libraries' own examples."""

import math

import pytest
from peltier_training.evaluate import metrics
from peltier_training.evaluate.text_metrics import compute_texts


def test_the_right_text_is_perfect():
    """Equal to one of its references."""
    found = ["the cat sat on the mat today", "a b"]
    values = compute_texts(found, [["no", "the cat sat on the mat today"], ["a b"]])
    assert values == pytest.approx({"bleu": 100.0, "rouge_l": 1.0, "exact_match": 1.0})


def test_bleu_is_of_the_corpus():
    """Eight words of two texts: precisions 7/8, 5/6, 3/4 and 1/2, no brevity penalty; their geometric mean."""
    values = compute_texts(["a b c d", "e f g x"], [["a b c d"], ["e f g h"]])
    assert values["bleu"] == pytest.approx(100 * math.prod((7 / 8, 5 / 6, 3 / 4, 1 / 2)) ** 0.25)


def test_references_help_together():
    """An n-gram counts if any reference has it; texts may differ in how many they have."""
    values = compute_texts(["a b c d", "e f g h"], [["a b x d", "y b c d", "a b c z"], ["e f g h"]])
    # the 4-gram of the first text is in no reference
    assert values["bleu"] == pytest.approx(100 * math.prod((8 / 8, 6 / 6, 4 / 4, 1 / 2)) ** 0.25)


def test_rouge_l_is_the_longest_common_subsequence():
    """`a c d` of `a b c d` and `a c d e f`: precision 3/4, recall 3/5, F 2/3; the best reference counts."""
    values = compute_texts(["a b c d"], [["z", "a c d e f"]])
    assert values["rouge_l"] == pytest.approx(2 / 3)


def test_an_exact_match_forgives_spaces_around_alone():
    """Case and punctuation count."""
    values = compute_texts([" a film ", "a Film", "a film."], [["a film"]] * 3)
    assert values["exact_match"] == pytest.approx(1 / 3)


def test_nothing_written_is_worth_nothing():
    """An empty text is an answer too."""
    assert compute_texts([""], [["a film"]]) == {"bleu": 0.0, "rouge_l": 0.0, "exact_match": 0.0}


def test_names_are_what_is_computed():
    """The loss comes from the scores."""
    assert {*compute_texts(["a"], [["a"]]), "loss"} == set(metrics.NAMES["text2text"])
    assert metrics.BEST["text2text"] == "bleu"
