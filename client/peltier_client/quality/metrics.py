"""Metrics of quality by task type, in plain Python: those of `peltier evaluate` and of comparisons."""

import math
import re
import string
from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence, Set
from itertools import groupby
from typing import Any, Protocol, TypeVar

MetricValues = dict[str, float]
Classes = dict[str, MetricValues]
Label = TypeVar("Label", bound="_Ordered")
# Characters [start, end) and the label.
EntitySpan = tuple[int, int, str]

_MAX_RANK = 10
_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


class _Ordered(Protocol):
    """A label: a text, or the position of one."""

    def __lt__(self, other: Any, /) -> bool: ...


def classify(
    gold: Sequence[Label], found: Sequence[Label | None], names: Sequence[Label] = ()
) -> tuple[MetricValues, dict[Label, MetricValues]]:
    """Accuracy, macro F1 and Matthews correlation, and each label's precision, recall, F1 and support.

    An answer of None is wrong. With two `names` the metrics include the F1 of the second.
    """
    own = Counter(answer for label, answer in zip(gold, found, strict=True) if label == answer)
    wanted = Counter(gold)
    answered = Counter(label for label in found if label is not None)
    classes = {label: _scores(own[label], wanted[label], answered[label]) for label in sorted({*wanted, *answered})}
    metrics = {
        "accuracy": _mean(label == answer for label, answer in zip(gold, found, strict=True)),
        "f1_macro": _macro_f1(classes),
        "matthews": _matthews(gold, found),
    }
    if len(names) == 2:
        metrics["f1"] = classes[names[1]]["f1"] if names[1] in classes else 0.0
    return metrics, classes


def choose_several(
    gold: Sequence[Set[Label]], found: Sequence[Set[Label]], names: Iterable[Label] = ()
) -> tuple[MetricValues, dict[Label, MetricValues]]:
    """Micro and macro F1 of sets of labels, the share of rows that match exactly, and each label's own metrics."""
    pairs = list(zip(gold, found, strict=True))
    own = Counter(label for labels, answer in pairs for label in labels & answer)
    wanted = Counter(label for labels in gold for label in labels)
    answered = Counter(label for labels in found for label in labels)
    labels = sorted({*names, *wanted, *answered})
    classes = {label: _scores(own[label], wanted[label], answered[label]) for label in labels}
    metrics = {
        "f1_micro": _scores(own.total(), wanted.total(), answered.total())["f1"],
        "f1_macro": _macro_f1(classes),
        "exact_match": _mean(labels == answer for labels, answer in pairs),
    }
    return metrics, classes


def regress(gold: Sequence[float], found: Sequence[float]) -> MetricValues:
    """The correlations, and the mean squared error."""
    errors = ((own - other) ** 2 for own, other in zip(gold, found, strict=True))
    return correlate(gold, found) | {"mse": _mean(errors)}


def correlate(gold: Sequence[float], found: Sequence[float]) -> MetricValues:
    """Pearson and Spearman correlation; 0 with a constant, for which they are undefined."""
    return {"pearson": _correlation(gold, found), "spearman": _correlation(_ranks(gold), _ranks(found))}


def match_texts(gold: Sequence[str], found: Sequence[str]) -> MetricValues:
    """The share of texts that are equal apart from surrounding white space."""
    return {"exact_match": _mean(own.strip() == other.strip() for own, other in zip(gold, found, strict=True))}


def rank_documents(
    queries: Sequence[Hashable], relevance: Sequence[float], scores: Sequence[float]
) -> tuple[MetricValues, Mapping[int, float]]:
    """`mrr` and `ndcg@10` as means over queries with a relevant document, and the reciprocal rank of each such query by
    its first row. `queries` has the query of each row. A document is relevant if its relevance is above 0."""
    rows_by_query: dict[Hashable, list[int]] = {}
    for row, query in enumerate(queries):
        rows_by_query.setdefault(query, []).append(row)
    ranks, gains = dict[int, float](), list[float]()
    for rows in rows_by_query.values():
        grades, own = [relevance[row] for row in rows], [scores[row] for row in rows]
        if max(grades) > 0:
            ranks[rows[0]] = reciprocal_rank(grades, own)
            gains.append(gain(grades, own))
    return {"mrr": _mean(ranks.values()), "ndcg@10": _mean(gains)}, ranks


def reciprocal_rank(relevance: Sequence[float], scores: Sequence[float]) -> float:
    """The reciprocal rank of a query's first relevant document. Among equal scores, relevant documents come last."""
    best = max(score for score, grade in zip(scores, relevance, strict=True) if grade > 0)
    before = sum(
        score > best or (score == best and not grade > 0) for score, grade in zip(scores, relevance, strict=True)
    )
    return 1 / (before + 1)


def gain(relevance: Sequence[float], scores: Sequence[float]) -> float:
    """The normalised discounted cumulative gain of a query's first ten documents (Järvelin and Kekäläinen 2002), where
    the gain of a document is its relevance. Equal scores share their gain."""
    return _discounted(relevance, scores) / _discounted(relevance, relevance)


def match_answers(gold: Sequence[Sequence[str]], found: Sequence[str]) -> tuple[MetricValues, list[float]]:
    """The means of `score_answer` over questions, and the exact match of each."""
    scores = [score_answer(*pair) for pair in zip(gold, found, strict=True)]
    exact = [own for own, _ in scores]
    return {"exact_match": _mean(exact), "f1": _mean(f1 for _, f1 in scores)}, exact


def score_answer(gold: Sequence[str], found: str) -> tuple[float, float]:
    """SQuAD's exact match and F1, 0 to 1, of an answer with the best of the right ones. The empty text is no answer,
    which is right if there is none.

    Texts are compared as in SQuAD's script: in lower case, without punctuation, articles and extra white space.
    """
    own, texts = _words(found), [_words(text) for text in gold or [""]]
    counts = Counter(own)
    return max(float(own == wanted) for wanted in texts), max(_words_f1(counts, Counter(wanted)) for wanted in texts)


def score_entities(gold: Sequence[Set[EntitySpan]], found: Sequence[Set[EntitySpan]]) -> tuple[MetricValues, Classes]:
    """F1, precision and recall of whole entities over all rows, as seqeval defines them, and those of each label with
    its number of entities."""
    pairs = zip(gold, found, strict=True)
    own = Counter(label for entities, answer in pairs for *_, label in entities & answer)
    wanted, answered = (Counter(label for entities in rows for *_, label in entities) for rows in (gold, found))
    classes = {label: _scores(own[label], wanted[label], answered[label]) for label in sorted({*wanted, *answered})}
    metrics = _scores(own.total(), wanted.total(), answered.total())
    return {name: metrics[name] for name in ("f1", "precision", "recall")}, classes


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


def _scores(num_right: int, num_wanted: int, num_found: int) -> MetricValues:
    return {
        "precision": num_right / num_found if num_found else 0.0,
        "recall": num_right / num_wanted if num_wanted else 0.0,
        "f1": 2 * num_right / (num_wanted + num_found) if num_wanted + num_found else 0.0,
        "support": num_wanted,
    }


def _macro_f1(classes: Mapping[Label, MetricValues]) -> float:
    return _mean(own["f1"] for own in classes.values())


def _matthews(gold: Sequence[Label], found: Sequence[Label | None]) -> float:
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


def _discounted(relevance: Sequence[float], scores: Sequence[float]) -> float:
    total, rank = 0.0, 0
    order = sorted(range(len(scores)), key=lambda place: -scores[place])
    for _, run in groupby(order, key=lambda place: scores[place]):
        grades = [relevance[place] for place in run]
        discounts = [1 / math.log2(own + 2) for own in range(rank, min(rank + len(grades), _MAX_RANK))]
        total += math.fsum(grades) / len(grades) * math.fsum(discounts)
        rank += len(grades)
    return total


def _words(text: str) -> list[str]:
    """In lower case, without punctuation and articles."""
    return _ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split()


def _words_f1(found: Counter[str], wanted: Counter[str]) -> float:
    if not found or not wanted:
        return float(found == wanted)
    num_shared = sum(min(count, found[word]) for word, count in wanted.items())
    return 2 * num_shared / (found.total() + wanted.total())


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return math.fsum(listed) / len(listed) if listed else 0.0
