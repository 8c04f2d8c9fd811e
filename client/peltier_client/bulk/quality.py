"""Metrics of answers, defined as in `peltier evaluate` but without its libraries."""

import math
from collections import Counter
from collections.abc import Iterable, Sequence

Metrics = dict[str, float]
Classes = dict[str, Metrics]


def classify(gold: Sequence[str], found: Sequence[str | None], names: Sequence[str] = ()) -> tuple[Metrics, Classes]:
    """Accuracy, macro F1 and Matthews correlation, and each label's precision, recall, F1 and support.

    An answer of None is wrong. With two `names` the metrics include the F1 of the second.
    """
    present = sorted({*gold, *(label for label in found if label is not None)})
    classes = {label: _label([own == label for own in gold], [own == label for own in found]) for label in present}
    accuracy = _mean(own == other for own, other in zip(gold, found, strict=True))
    metrics = {"accuracy": accuracy, "f1_macro": _macro_f1(classes)}
    metrics["matthews"] = _matthews(gold, found)
    if len(names) == 2:
        metrics["f1"] = classes[names[1]]["f1"] if names[1] in classes else 0.0
    return metrics, classes


def choose_several(
    gold: Sequence[frozenset[str]], found: Sequence[frozenset[str]], names: Iterable[str] = ()
) -> tuple[Metrics, Classes]:
    """Micro and macro F1 of sets of labels, the share of rows that match exactly, and each label's own metrics."""
    labels = sorted({*names, *(label for own in (*gold, *found) for label in own)})
    classes = {label: _label([label in own for own in gold], [label in own for own in found]) for label in labels}
    num_shared = sum(len(own & other) for own, other in zip(gold, found, strict=True))
    num_named = sum(map(len, gold)) + sum(map(len, found))
    metrics = {
        "f1_micro": 2 * num_shared / num_named if num_named else 0.0,
        "f1_macro": _macro_f1(classes),
        "exact_match": _mean(own == other for own, other in zip(gold, found, strict=True)),
    }
    return metrics, classes


def regress(gold: Sequence[float], found: Sequence[float]) -> Metrics:
    """Pearson and Spearman correlation, 0 with a constant, and the mean squared error."""
    return {
        "pearson": _correlation(gold, found),
        "spearman": _correlation(_ranks(gold), _ranks(found)),
        "mse": _mean((own - other) ** 2 for own, other in zip(gold, found, strict=True)),
    }


def match_texts(gold: Sequence[str], found: Sequence[str]) -> Metrics:
    """The share of texts that are equal apart from surrounding white space."""
    return {"exact_match": _mean(own.strip() == other.strip() for own, other in zip(gold, found, strict=True))}


def sign_test(num_first: int, num_second: int) -> float:
    """The p-value of the exact two-sided sign test. For rows that only one side answers correctly, this is McNemar's
    exact test."""
    total = num_first + num_second
    log_all = math.lgamma(total + 1) - total * math.log(2)
    tail = sum(
        math.exp(log_all - math.lgamma(k + 1) - math.lgamma(total - k + 1))
        for k in range(min(num_first, num_second) + 1)
    )
    return min(1.0, 2 * tail)


def _label(wanted: Sequence[bool], found: Sequence[bool]) -> Metrics:
    num_right = sum(own and other for own, other in zip(wanted, found, strict=True))
    num_wanted, num_found = sum(wanted), sum(found)
    return {
        "precision": num_right / num_found if num_found else 0.0,
        "recall": num_right / num_wanted if num_wanted else 0.0,
        "f1": 2 * num_right / (num_wanted + num_found) if num_wanted + num_found else 0.0,
        "support": num_wanted,
    }


def _macro_f1(classes: Classes) -> float:
    return _mean(own["f1"] for own in classes.values())


def _matthews(gold: Sequence[str], found: Sequence[str | None]) -> float:
    total, wanted, answered = len(gold), Counter(gold), Counter(found)
    num_right = sum(own == other for own, other in zip(gold, found, strict=True))
    above = num_right * total - sum(count * answered[label] for label, count in wanted.items())
    spread = [total**2 - sum(count**2 for count in counts.values()) for counts in (wanted, answered)]
    return above / math.sqrt(spread[0] * spread[1]) if all(spread) else 0.0


def _correlation(first: Sequence[float], second: Sequence[float]) -> float:
    means = _mean(first), _mean(second)
    a, b = [value - means[0] for value in first], [value - means[1] for value in second]
    norm = math.sqrt(math.fsum(x * x for x in a)) * math.sqrt(math.fsum(x * x for x in b))
    is_constant = len(set(first)) < 2 or len(set(second)) < 2
    return 0.0 if is_constant or not norm else math.fsum(x * y for x, y in zip(a, b, strict=True)) / norm


def _ranks(values: Sequence[float]) -> list[float]:
    """From 1; equal values share the mean of their ranks."""
    positions: dict[float, list[int]] = {}
    for rank, value in enumerate(sorted(values), 1):
        positions.setdefault(value, []).append(rank)
    return [_mean(positions[value]) if len(positions[value]) > 1 else positions[value][0] for value in values]


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return math.fsum(listed) / len(listed) if listed else 0.0
