"""The metrics beside those of scikit-learn, scipy and torchmetrics."""

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from peltier_client.quality.metrics import (
    choose_several,
    classify,
    gain,
    match_answers,
    match_texts,
    reciprocal_rank,
    regress,
    score_answer,
    score_entities,
    sign_test,
)

NAMES = ["a", "b", "c", "d", "never"]


@pytest.fixture(scope="module")
def sk() -> Any:
    """Metrics of scikit-learn, which is imported only where these tests run."""
    from sklearn import metrics

    return metrics


@pytest.fixture(scope="module")
def stats() -> Any:
    """Scipy's, also a slow import."""
    from scipy import stats

    return stats


@pytest.mark.parametrize("seed", range(5))
def test_classification_is_scikit_learns(seed: int, sk) -> None:
    """Also with labels that are never answered, and with answers that are no label."""
    draw = random.Random(seed)
    gold = draw.choices(NAMES[:4], k=60)
    found = [draw.choice([own, *NAMES[:3]]) for own in gold]
    metrics, classes = classify(gold, found, NAMES)
    present = sorted({*gold, *found})
    assert metrics == pytest.approx(
        {
            "accuracy": sk.accuracy_score(gold, found),
            "f1_macro": sk.f1_score(gold, found, labels=present, average="macro", zero_division=0),
            "matthews": sk.matthews_corrcoef(gold, found),
        }
    )
    columns = sk.precision_recall_fscore_support(gold, found, labels=present, zero_division=0)
    for label, *values in zip(present, *columns, strict=True):
        assert list(classes[label].values()) == pytest.approx(values)
    assert classify(gold, [None, *found[1:]])[0]["accuracy"] <= metrics["accuracy"]


def test_two_labels_have_the_f1_of_the_second(sk) -> None:
    """As evaluate has it; 0 where the label is nowhere."""
    gold, found = list("ababb"), list("aabbb")
    assert classify(gold, found, "ab")[0]["f1"] == pytest.approx(sk.f1_score(gold, found, pos_label="b"))
    assert classify(["a"], ["a"], "ab")[0] == {"accuracy": 1.0, "f1_macro": 1.0, "matthews": 0.0, "f1": 0.0}


@pytest.mark.parametrize("seed", range(5))
def test_several_labels_are_scikit_learns(seed: int, sk) -> None:
    """Micro and macro F1 over every label that there is, and the share of rows that are wholly right."""
    draw = random.Random(seed)
    gold = [frozenset(draw.sample(NAMES[:4], draw.randrange(3))) for _ in range(40)]
    found = [frozenset(draw.sample(NAMES[:4], draw.randrange(3))) if draw.random() < 0.5 else own for own in gold]
    wanted, answered = ([[name in labels for name in NAMES] for labels in rows] for rows in (gold, found))
    assert choose_several(gold, found, NAMES)[0] == pytest.approx(
        {
            "f1_micro": sk.f1_score(wanted, answered, average="micro", zero_division=0),
            "f1_macro": sk.f1_score(wanted, answered, average="macro", zero_division=0),
            "exact_match": sk.accuracy_score(wanted, answered),
        }
    )


def test_regression_is_scipys(sk, stats) -> None:
    """With ties among the values; a constant correlates with nothing."""
    draw = random.Random(0)
    gold = [round(draw.gauss(0, 2)) / 2 for _ in range(50)]
    found = [value + draw.choice([-0.5, 0, 0, 1]) for value in gold]
    assert regress(gold, found) == pytest.approx(
        {
            "pearson": stats.pearsonr(gold, found).statistic,
            "spearman": stats.spearmanr(gold, found).statistic,
            "mse": sk.mean_squared_error(gold, found),
        }
    )
    assert regress(gold, [1.0] * 50)["pearson"] == regress(gold, [1.0] * 50)["spearman"] == 0.0


def test_texts_match_but_for_the_space_around_them() -> None:
    """Case and words must be the same."""
    assert match_texts(["a", "b ", "C"], ["a", "b", "c"]) == {"exact_match": pytest.approx(2 / 3)}


@pytest.mark.parametrize(("first", "second"), [(0, 0), (1, 0), (5, 7), (0, 12), (40, 71), (700, 900)])
def test_the_sign_test_is_the_exact_binomial(first: int, second: int, stats) -> None:
    """Two-sided; of no rows that differ it is 1."""
    expected = stats.binomtest(first, first + second).pvalue if first + second else 1.0
    assert sign_test(first, second) == sign_test(second, first) == pytest.approx(expected, rel=1e-9)


Documents = list[tuple[int, int]]


@given(documents=st.lists(st.tuples(st.integers(0, 3), st.integers(0, 4)), min_size=2, max_size=24))
def test_the_gain_is_that_of_scikit_learn(documents: Documents, sk) -> None:
    """With grades, equal scores, and more documents than count."""
    grades, scores = zip(*documents, strict=True)
    if max(grades) > 0:
        assert gain(grades, scores) == pytest.approx(sk.ndcg_score([grades], [scores], k=10))


def test_the_first_relevant_document_counts() -> None:
    """Of equal scores the relevant document is the last."""
    assert reciprocal_rank([0, 1, 2], [3.0, 2.0, 1.0]) == 1 / 2
    assert reciprocal_rank([1, 0, 0], [1.0, 1.0, 1.0]) == 1 / 3


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
    assert score_answer(gold, found) == (exact, pytest.approx(f1))


@pytest.mark.slow  # Torchmetrics is a slow import; the test above has the same values for the same answers.
@pytest.mark.parametrize(("found", "gold"), [case[:2] for case in CASES])
def test_answers_are_scored_as_torchmetrics_does(found: str, gold: list[str]):
    """Its values are percents."""
    from torchmetrics.functional.text.squad import squad

    values = squad(
        [{"id": "0", "prediction_text": found}],
        [{"id": "0", "answers": {"text": gold or [""], "answer_start": []}}],
    )
    wanted = float(values["exact_match"]) / 100, float(values["f1"]) / 100
    assert score_answer(gold, found) == pytest.approx(wanted)


def test_metrics_are_means_over_questions():
    """From 0 to 1."""
    found, gold = [case[0] for case in CASES], [case[1] for case in CASES]
    means, exact = match_answers(gold, found)
    assert exact == [case[2] for case in CASES]
    assert means["exact_match"] == sum(case[2] for case in CASES) / len(CASES)
    assert means["f1"] == pytest.approx(sum(case[3] for case in CASES) / len(CASES))


ADA, LONDON = (0, 3, "person"), (7, 13, "place")


def test_scores_are_of_whole_entities():
    """One of two is right; a longer one is not."""
    metrics, classes = score_entities(
        [frozenset({ADA, LONDON})], [frozenset({ADA, (4, 13, "place"), (7, 13, "person")})]
    )
    assert metrics == pytest.approx({"f1": 2 / 5, "precision": 1 / 3, "recall": 1 / 2})
    assert classes["person"] == pytest.approx({"f1": 2 / 3, "precision": 1 / 2, "recall": 1.0, "support": 1.0})
    assert classes["place"]["f1"] == 0.0
    assert score_entities([frozenset()], [frozenset()])[0] == {"f1": 0.0, "precision": 0.0, "recall": 0.0}
