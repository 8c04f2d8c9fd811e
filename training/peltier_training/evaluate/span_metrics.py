"""SQuAD's metrics of extracted answers, from torchmetrics."""

from collections.abc import Sequence


def score_span(found: str, gold: Sequence[str]) -> tuple[float, float]:
    """Exact match and F1, 0 to 1, of an answer with the best of the right ones; the empty text is no answer, which is
    right if there is none.

    Both texts are compared as SQuAD's script does it: in lower case, without punctuation, articles and extra white
    space. F1 is that of their words.
    """
    from torchmetrics.functional.text.squad import squad  # takes two seconds to import

    values = squad(
        [{"id": "0", "prediction_text": found}],
        [{"id": "0", "answers": {"text": list(gold) or [""], "answer_start": []}}],
    )
    return float(values["exact_match"]) / 100, float(values["f1"]) / 100


def compute_spans(found: Sequence[str], gold: Sequence[Sequence[str]]) -> dict[str, float]:
    """The means of `score_span` over answers."""
    scores = [score_span(text, own) for text, own in zip(found, gold, strict=True)]
    exact, f1 = (sum(column) / len(scores) for column in zip(*scores, strict=True))
    return {"exact_match": exact, "f1": f1}
