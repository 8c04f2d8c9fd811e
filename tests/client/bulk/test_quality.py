"""The client's metrics beside those of scikit-learn and scipy."""

import random

import pytest
from peltier_client.bulk.quality import choose_several, classify, match_texts, regress, sign_test
from scipy import stats
from sklearn import metrics as sk
from sklearn.preprocessing import MultiLabelBinarizer

NAMES = ["a", "b", "c", "d", "never"]


@pytest.mark.parametrize("seed", range(5))
def test_classification_is_scikit_learns(seed: int) -> None:
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


def test_two_labels_have_the_f1_of_the_second() -> None:
    """As evaluate has it; 0 where the label is nowhere."""
    gold, found = list("ababb"), list("aabbb")
    assert classify(gold, found, "ab")[0]["f1"] == pytest.approx(sk.f1_score(gold, found, pos_label="b"))
    assert classify(["a"], ["a"], "ab")[0] == {"accuracy": 1.0, "f1_macro": 1.0, "matthews": 0.0, "f1": 0.0}


@pytest.mark.parametrize("seed", range(5))
def test_several_labels_are_scikit_learns(seed: int) -> None:
    """Micro and macro F1 over every label that there is, and the share of rows that are wholly right."""
    draw = random.Random(seed)
    gold = [frozenset(draw.sample(NAMES[:4], draw.randrange(3))) for _ in range(40)]
    found = [frozenset(draw.sample(NAMES[:4], draw.randrange(3))) if draw.random() < 0.5 else own for own in gold]
    rows = MultiLabelBinarizer(classes=NAMES)
    wanted, answered = rows.fit_transform(gold), rows.transform(found)
    assert choose_several(gold, found, NAMES)[0] == pytest.approx(
        {
            "f1_micro": sk.f1_score(wanted, answered, average="micro", zero_division=0),
            "f1_macro": sk.f1_score(wanted, answered, average="macro", zero_division=0),
            "exact_match": sk.accuracy_score(wanted, answered),
        }
    )


def test_regression_is_scipys() -> None:
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
def test_the_sign_test_is_the_exact_binomial(first: int, second: int) -> None:
    """Two-sided; of no rows that differ it is 1."""
    expected = stats.binomtest(first, first + second).pvalue if first + second else 1.0
    assert sign_test(first, second) == sign_test(second, first) == pytest.approx(expected, rel=1e-9)
