"""Metrics of generated texts, from the reference implementations sacrebleu and rouge-score."""

from collections.abc import Sequence
from itertools import zip_longest

from rouge_score.rouge_scorer import RougeScorer
from sacrebleu.metrics.bleu import BLEU


def compute_texts(found: Sequence[str], references: Sequence[Sequence[str]]) -> dict[str, float]:
    """`bleu` is corpus BLEU, 0 to 100. `rouge_l` and `exact_match`, 0 to 1, are means over texts of the best value
    among each text's references.

    BLEU has sacrebleu's defaults (13a tokens, cased). ROUGE-L is the F-measure without stemming.
    """
    streams = [list(stream) for stream in zip_longest(*references)]  # a text with fewer references has None
    rouge = RougeScorer(["rougeL"])
    pairs = list(zip(found, references, strict=True))
    return {
        "bleu": float(BLEU().corpus_score(list(found), streams).score),
        "rouge_l": sum(rouge.score_multi(own, text)["rougeL"].fmeasure for text, own in pairs) / len(pairs),
        "exact_match": sum(text.strip() in {reference.strip() for reference in own} for text, own in pairs)
        / len(pairs),
    }
