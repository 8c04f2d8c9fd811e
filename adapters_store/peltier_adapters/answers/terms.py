"""Converts the outputs of sparse embeddings to terms with weights."""

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from peltier_backbone.text.tokenizer import Tokenizer
from torch import Tensor

from peltier_adapters.answers import embeddings


class Terms(NamedTuple):
    """The terms of a text by their numbers in the vocabulary [terms], and their weights [terms], largest first."""

    indices: Tensor
    weights: Tensor


def read(output: Tensor, top_k: int | None = None, *, raw: bool = False) -> Terms:
    """The terms with positive logits of an output [terms, 2], at most `top_k`. Their weights are log(1 + relu(logit))
    (Formal et al. 2021, "SPLADE v2", Eq. 1), or the logits if they are wanted `raw`."""
    kept = output[output[:, 1] > 0][:top_k]
    return Terms(kept[:, 0].long(), kept[:, 1] if raw else kept[:, 1].log1p())


def answer(found: Terms, tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """The terms as a prediction has them: the number of a term, its text in the vocabulary, and its weight."""
    if not len(found.indices):
        return []
    pairs = zip(found.indices.tolist(), embeddings.to_list(found.weights), strict=True)
    return [{"index": index, "term": tokenizer.token(index), "weight": weight} for index, weight in pairs]


def relative_distance(found: Tensor, wanted: Tensor) -> float:
    """The length of the difference of two outputs [terms, 2], relative to that of the wanted logits. A term that one of
    them lacks has there at most the smallest logit of the others, so it differs only by what exceeds this."""
    first, second = _logits(found), _logits(wanted)
    square = sum(
        (_logit(first, term, second) - _logit(second, term, first)) ** 2 for term in first.keys() | second.keys()
    )
    length = float(wanted[:, 1].norm())
    return math.sqrt(square) / length if length else math.inf


def _logits(output: Tensor) -> Mapping[float, float]:
    """By term. A recorded number beyond float32 is infinite, and no term."""
    return dict(output.tolist())


def _logit(own: Mapping[float, float], term: float, other: Mapping[float, float]) -> float:
    return own[term] if term in own else min(min(own.values()), other[term])
