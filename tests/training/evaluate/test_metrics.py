"""Metrics against values worked out by hand."""

import math
import warnings

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peltier_training.config.run import METRICS
from peltier_training.evaluate import metrics
from peltier_training.evaluate.metrics import Cosines, LateInteraction, TermProducts, embedding, ranks
from peltier_training.models.model import similarities
from seqeval import metrics as seqeval


def test_binary_classification_counts_the_second_label_as_positive():
    """Targets 1 1 1 0 0 0, found 1 1 0 0 0 1: 4 of 6 right; TP 2, FP 1, FN 1, TN 2."""
    targets = np.array([1, 1, 1, 0, 0, 0])
    found = np.array([1, 1, 0, 0, 0, 1])
    values = metrics.compute("classification", np.eye(2)[found], targets)
    # F1 = 2*2 / (2*2 + 1 + 1), the same for both classes; Matthews = (2*2 - 1*1) / sqrt(3*3*3*3)
    assert values == pytest.approx({"accuracy": 4 / 6, "f1": 2 / 3, "f1_macro": 2 / 3, "matthews": 1 / 3})


def test_an_answer_that_is_no_label_is_wrong():
    """Targets 1 0 1 0, found 1 -1 1 0: three of four right; F1 is 1 for label 1 and 2/3 for label 0, none for -1."""
    values = metrics.classification(np.array([1, -1, 1, 0]), np.array([1, 0, 1, 0]), 2)
    assert (values["accuracy"], values["f1"]) == (0.75, 1.0)
    assert values["f1_macro"] == pytest.approx(5 / 6)


def test_multilabel_counts_every_label():
    """Logits above 0 are labels. TP 2, FP 1, FN 1; the labels' own F1 are 1, 0 and 2/3; one row of three is exact."""
    logits = np.array([[3.0, -1.0, -1.0], [-1.0, 2.0, 0.5], [-1.0, -1.0, -2.0]])
    targets = np.array([[1.0, 0.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 1.0]])
    values = metrics.compute("multilabel", logits, targets)
    assert values == pytest.approx({"f1_micro": 4 / 6, "f1_macro": (1 + 0 + 2 / 3) / 3, "exact_match": 1 / 3})


def test_regression_correlates():
    """Found 0 1 3 against 0 2 1: deviations -4/3 -1/3 5/3 and -1 1 0, so Pearson is 1 / sqrt(14/3 * 2)."""
    values = metrics.compute("regression", np.array([[0.0], [1.0], [3.0]]), np.array([0.0, 2.0, 1.0]))
    assert values == pytest.approx({"pearson": (28 / 3) ** -0.5, "spearman": 0.5, "mse": 5 / 3})


@pytest.mark.parametrize("constant", ["found", "targets"])
def test_a_constant_orders_nothing(constant: str):
    """Correlation with a constant is 0, without a warning."""
    rising, flat = np.array([1.0, 2.0, 3.0]), np.full(3, 2.0)
    found, targets = (flat, rising) if constant == "found" else (rising, flat)
    values = metrics.compute("regression", found[:, None], targets)
    assert values == pytest.approx({"pearson": 0.0, "spearman": 0.0, "mse": 2 / 3})


def test_one_predicted_class_has_no_matthews():
    """Always the same label: accuracy is the majority's, Matthews and the positive F1 are 0."""
    values = metrics.compute("classification", np.eye(2)[[0, 0, 0, 0]], np.array([0, 0, 0, 1]))
    assert values == pytest.approx({"accuracy": 0.75, "f1": 0.0, "f1_macro": 3 / 7, "matthews": 0.0})


def test_a_single_label_is_one_question():
    """Multilabel with one label: TP 1, FP 1, FN 0, TN 2; the absent label is no class of its own."""
    values = metrics.compute("multilabel", np.array([[1.0], [1.0], [-1.0], [-1.0]]), np.array([[1.0], [0], [0], [0]]))
    assert values == pytest.approx({"f1_micro": 2 / 3, "f1_macro": 2 / 3, "exact_match": 0.75})


def test_nearly_constant_answers_are_no_warning():
    """As a regression gives after its first steps."""
    found = np.array([[1e6], [1e6 + 1e-7], [1e6 - 1e-7]])
    assert metrics.compute("regression", found, np.array([1.0, 2.0, 0.0]))["spearman"] == pytest.approx(1.0)


@pytest.mark.parametrize("kind", ["classification", "multilabel", "regression"])
def test_every_type_has_its_metrics(kind: metrics.TaskType):
    """What is computed is what the names promise, and the best epoch is chosen by one of them."""
    targets = {"classification": [0, 1], "multilabel": [[1, 0], [0, 1]], "regression": [0.5, 1.5]}[kind]
    logits = np.array([[0.4], [1.4]]) if kind == "regression" else np.eye(2)
    assert sorted(metrics.compute(kind, logits, np.array(targets))) == sorted(METRICS[kind])


QUERY = np.array([0.0, 0.0, 0.0, 1.0, 1.0])


def test_metrics_are_means_over_queries():
    """The relevant document of the first query is second, that of the other first. The rows of a query need not be
    neighbours."""
    scores, relevance = np.array([0.9, 0.5, 0.1, 2.0, -1.0]), np.array([0.0, 1.0, 0.0, 1.0, 0.0])
    wanted = {"mrr": (1 / 2 + 1) / 2, "ndcg@10": (1 / math.log2(3) + 1) / 2}
    order = np.array([3, 0, 4, 2, 1])
    targets = np.stack([relevance, QUERY], 1)
    assert metrics.compute("ranking", scores[:, None], targets) == pytest.approx(wanted)
    assert metrics.compute("ranking", scores[order, None], targets[order]) == pytest.approx(wanted)


def test_queries_without_a_relevant_document_are_left_out():
    """They would be 0 for every ranking; without any query, the metrics are 0."""
    relevance = np.array([0.0, 0.0, 0.0, 1.0, 0.0])
    scores = np.array([[3.0], [2.0], [1.0], [2.0], [1.0]])
    assert metrics.compute("ranking", scores, np.stack([relevance, QUERY], 1)) == {"mrr": 1.0, "ndcg@10": 1.0}
    assert metrics.compute("ranking", scores, np.stack([0 * relevance, QUERY], 1)) == {"mrr": 0.0, "ndcg@10": 0.0}


def test_scores_are_of_whole_entities():
    """Two of three are right among four that were found."""
    gold = [["B-a", "I-a", "O", "B-b"], ["O", "B-a"]]
    found = [["B-a", "I-a", "O", "B-b"], ["B-a", "B-b"]]
    assert metrics.tagging(found, gold) == pytest.approx({"f1": 4 / 7, "precision": 2 / 4, "recall": 2 / 3})
    assert metrics.tagging([["O"] * 4, ["O"] * 2], gold) == {"f1": 0.0, "precision": 0.0, "recall": 0.0}


TAGS = st.sampled_from(["O", "B-a", "I-a", "B-b", "I-b"])


@given(texts=st.lists(st.lists(st.tuples(TAGS, TAGS), min_size=1, max_size=9), min_size=1, max_size=4))
def test_entities_are_scored_as_seqeval_does(texts: list[list[tuple[str, str]]]):
    """An entity may begin without a B, and its label may change within it."""
    gold, found = ([[pair[side] for pair in text] for text in texts] for side in (0, 1))
    wanted = (seqeval.f1_score, seqeval.precision_score, seqeval.recall_score)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # seqeval divides by the number of found entities
        values = [metric(gold, found, zero_division=0) for metric in wanted]
    assert list(metrics.tagging(found, gold).values()) == pytest.approx(values)


def test_cosines_are_correlated_with_scores() -> None:
    """Whatever the lengths of the vectors; the scale of the scores does not matter."""
    angles, lengths = np.array([0.1, 0.9, 0.5, 1.3]), np.array([3.0, 0.1, 20.0, 1.0])
    second = np.stack([np.cos(angles), np.sin(angles)], 1) * lengths[:, None]
    vectors = np.stack([np.tile([2.0, 0.0], (4, 1)), second], 1)
    assert embedding(Cosines(vectors), np.array([5.0, 2.0, 4.0, 0.0]))["spearman"] == pytest.approx(1.0)
    assert embedding(Cosines(vectors), np.zeros(4)) == {"pearson": 0.0, "spearman": 0.0}


def test_ranks_are_among_different_second_texts() -> None:
    """Equal texts are one candidate, and texts that belong to the first text are none beside its own."""
    unit = np.eye(4)
    vectors = np.stack([
        np.stack([unit[0] + 0.9 * unit[1], unit[1]]),  # text 10 is nearer to the first text than its own
        np.stack([unit[0], unit[0]]),
        np.stack([unit[2], unit[2]]),
        np.stack([unit[2], unit[2] + unit[3]]),  # its first text has another second text, 12
        np.stack([unit[3], unit[0]]),  # an equal second text, which all others are as far from
    ])  # fmt: skip
    numbers = np.array([[0, 11], [1, 10], [2, 12], [2, 13], [3, 10]])
    assert ranks(Cosines(vectors), numbers).tolist() == [2, 1, 1, 1, 4]
    found = embedding(Cosines(vectors), numbers)
    assert found == pytest.approx({"mrr": (0.5 + 3 + 0.25) / 5, "accuracy": 0.6})


def _output(**logits: float) -> torch.Tensor:
    """The terms of a text, by the letters of the alphabet."""
    return torch.tensor([[float(ord(term) - ord("a")), logit] for term, logit in logits.items()])


def test_texts_are_as_similar_as_the_product_of_their_weights() -> None:
    """Of pairs by its cosine; a term without a positive logit does not count."""
    outputs = [_output(a=1.0, b=-1.0), _output(c=2.0, a=1.0), _output(b=3.0, d=1.0), _output(b=1.0, c=-2.0)]
    products = TermProducts(outputs, 4)
    a = np.log(2.0)
    expected = [[a * a, 0.0], [0.0, np.log(4.0) * a]]
    np.testing.assert_allclose(products.between(range(2), np.array([0, 1])), expected, rtol=1e-6)
    cosines = [a / np.hypot(np.log(3.0), a), np.log(4.0) / np.hypot(np.log(4.0), a)]
    np.testing.assert_allclose(products.of_pairs(), cosines, rtol=1e-6)
    assert products.num_terms == 1.5


def test_texts_without_terms_are_like_none() -> None:
    """They have no direction, and no rank but the last."""
    products = TermProducts([_output(a=-1.0), _output(a=1.0), _output(b=1.0), _output(b=1.0)], 4)
    assert products.of_pairs().tolist() == [0.0, 1.0]
    assert embedding(products, np.array([[0, 1], [2, 3]])) == {"mrr": 0.75, "accuracy": 0.5}


def test_texts_are_as_similar_as_the_vectors_of_their_tokens() -> None:
    """The mean over the first text's tokens of the largest cosine, whatever the lengths of vectors and texts; training
    has the same similarities."""
    generator = torch.Generator().manual_seed(0)
    lengths = (3, 5, 4, 2, 1, 6)
    outputs = [torch.randn(length, 4, generator=generator) for length in lengths]
    units = [output / output.norm(dim=1, keepdim=True) for output in outputs]
    expected = [[float((one @ other.T).amax(1).mean()) for other in units[1::2]] for one in units[::2]]
    found = LateInteraction(outputs)
    np.testing.assert_allclose(found.between(range(1, 3), np.array([2, 0])), np.array(expected)[1:, [2, 0]], rtol=1e-5)
    np.testing.assert_allclose(found.of_pairs(), np.diagonal(expected), rtol=1e-5)
    np.testing.assert_allclose(similarities(torch.cat(outputs), lengths).numpy(), expected, rtol=1e-5)
