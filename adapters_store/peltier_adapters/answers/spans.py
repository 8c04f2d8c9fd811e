"""Finds the answer to a question in the scores of its context's tokens, as the question-answering pipeline of
transformers 4 does."""

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from peltier_backbone.text.packing import Encoded
from peltier_backbone.text.token_places import NO_WORD, NOWHERE, Span
from torch import Tensor

from peltier_adapters.spec.tasks import SpanSpec

# The best spans of tokens of a window. The pipeline reads as many for one answer.
_CANDIDATES = 12


class SpanAnswer(NamedTuple):
    """The characters [start, end) of the context that answer a question; no answer is an empty text at 0. `score` is a
    probability, or the sum of the logits of the first and the last token."""

    answer: str
    start: int
    end: int
    score: float


class _Found(NamedTuple):
    probability: float
    raw: float
    start: int
    end: int


class _Window(NamedTuple):
    """The logits and the probabilities [1 + tokens, 2]: first those of no answer, which the first token of a row stands
    for, then those of the context's tokens. `words` has the characters of the word of each context token."""

    logits: NDArray[Any]
    probabilities: NDArray[Any]
    words: Sequence[Span]

    @classmethod
    def create(cls, row: Encoded, logits: Tensor) -> "_Window":
        own = [place for place, word in enumerate(row.words) if word != NO_WORD]
        tokens = range(own[0], own[-1] + 1) if own else range(0)
        read = logits.numpy()[[0, *tokens]]  # unlike torch, numpy does not release the GIL
        weights = np.exp(read - read.max(0))
        return cls(read, weights / weights.sum(0), _word_spans(row, slice(tokens.start, tokens.stop)))


def best_span(
    context: str, windows: Sequence[tuple[Encoded, Tensor]], spec: SpanSpec, *, raw_scores: bool = False
) -> SpanAnswer:
    """The likeliest answer, in whole words, from windows of the context with their logits [tokens, 2].

    The probability of a span is the product of those of its first and last token, among the tokens of the context in
    its window and the window's first token, which stands for no answer. The probabilities of spans of one window with
    the same text are added. Among the windows, the highest probability of a text counts. If `spec` allows no answer,
    its probability is the lowest in any window, and it wins if that is higher than those of all texts.
    """
    read = [_Window.create(*window) for window in windows]
    texts: dict[str, _Found] = {}
    for window in read:
        for text, found in _by_text(context, _candidates(window, spec.max_answer_length)).items():
            if text not in texts or found.probability > texts[text].probability:
                texts[text] = found
    answers = list(texts.values())
    if spec.no_answer or not answers:
        answers.append(min(map(_nothing, read)))
    best = max(answers, key=lambda found: found.probability)
    score = best.raw if raw_scores else best.probability
    return SpanAnswer(context[best.start : best.end], best.start, best.end, score)


def _nothing(window: _Window) -> _Found:
    return _Found(float(window.probabilities[0].prod()), float(window.logits[0].sum()), 0, 0)


def _candidates(window: _Window, max_tokens: int) -> Iterator[_Found]:
    """The likeliest spans, the best first."""
    words, num_ends = window.words, min(max_tokens, len(window.words))
    if not words:
        return
    starts, ends = window.probabilities[1:].T
    following = np.lib.stride_tricks.sliding_window_view(np.pad(ends, (0, num_ends - 1)), num_ends)
    products = (starts[:, None] * following).ravel()  # [tokens * num_ends]
    best = np.argpartition(-products, min(_CANDIDATES, len(products)) - 1)[:_CANDIDATES]
    for place in best[np.argsort(-products[best], kind="stable")].tolist():
        start, end = place // num_ends, place // num_ends + place % num_ends
        if end < len(words) and NOWHERE not in (words[start], words[end]):
            raw = float(window.logits[1 + start, 0] + window.logits[1 + end, 1])
            yield _Found(float(products[place]), raw, words[start][0], words[end][1])


def _word_spans(row: Encoded, tokens: slice) -> list[Span]:
    """The characters of the word of each token, as far as it is in the row."""
    words: dict[int, Span] = {NO_WORD: NOWHERE}
    for word, (start, end) in zip(row.words[tokens], row.offsets[tokens], strict=True):
        if word != NO_WORD:
            words[word] = (words[word][0] if word in words else start, end)
    return [words[word] for word in row.words[tokens]]


def _by_text(context: str, spans: Iterator[_Found]) -> dict[str, _Found]:
    """The first span of each text in any case, with the probability of all that have it."""
    found: dict[str, _Found] = {}
    for span in spans:
        text = context[span.start : span.end].lower()
        known = found.get(text)
        found[text] = span if known is None else known._replace(probability=known.probability + span.probability)
    return found
