"""SQuAD's metrics of answers to questions, defined as in `peltier evaluate` but without its libraries."""

import re
import string
from collections import Counter
from collections.abc import Sequence

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)


def score_span(found: str, gold: Sequence[str]) -> tuple[float, float]:
    """Exact match and F1 of the words, with the best of the right answers; the empty text is no answer."""
    pairs = [(_words(found), _words(text)) for text in gold or [""]]
    return max(float(own == wanted) for own, wanted in pairs), max(_f1(own, wanted) for own, wanted in pairs)


def _words(text: str) -> list[str]:
    """In lower case, without punctuation and articles."""
    return _ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split()


def _f1(found: Sequence[str], wanted: Sequence[str]) -> float:
    if not found or not wanted:
        return float(found == wanted)
    num_shared = sum((Counter(found) & Counter(wanted)).values())
    return 2 * num_shared / (len(found) + len(wanted))
