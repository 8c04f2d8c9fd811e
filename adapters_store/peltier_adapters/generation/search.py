"""Chooses the next token of a text: greedily, by sampling, or by beam search. Each text has one search, on the CPU."""

from dataclasses import dataclass, field
from typing import Literal, Protocol

import torch
from torch import Tensor

FinishReason = Literal["stop", "length"]
# transformers adds this number to a score that must never win. The same number makes ties break in the same way.
_NEVER = -1.0e9


@dataclass(frozen=True)
class Decoding:
    """How a text is decoded. Temperature 0 is greedy. Beam search does not sample.

    Sampling keeps the likeliest tokens that together have probability `top_p`. `seed` makes it repeatable.
    """

    max_new_tokens: int
    num_beams: int = 1
    temperature: float = 0.0
    top_p: float = 1.0
    seed: int = 0


class Search(Protocol):
    """A text that grows by one token a step."""

    @property
    def tokens(self) -> list[int]:
        """The input tokens of the next step, one per row of the search."""

    @property
    def ids(self) -> list[int]:
        """The tokens of the text so far (of the best beam), without the start and end tokens."""

    @property
    def log_prob(self) -> float:
        """Sum of the log-probabilities of the tokens, including the end token."""

    @property
    def finish(self) -> FinishReason | None:
        """Why the text has ended; None before its end."""

    def advance(self, log_probs: Tensor) -> list[int] | None:
        """Add one token, from log-probabilities [rows, vocab]. Returns for each row the row that it continues; None if
        each row continues itself."""


@dataclass
class Line:
    """One text, greedy or sampled."""

    decoding: Decoding
    start: int
    end: int
    ids: list[int] = field(default_factory=list)
    log_prob: float = 0.0
    finish: FinishReason | None = None

    def __post_init__(self) -> None:
        self._generator = torch.Generator().manual_seed(self.decoding.seed)

    @property
    def greedy(self) -> bool:
        """Whether the search takes the likeliest token. The caller may then find it for many texts at once."""
        return self.decoding.temperature == 0.0

    @property
    def tokens(self) -> list[int]:
        return [self.ids[-1] if self.ids else self.start]

    def advance(self, log_probs: Tensor) -> list[int] | None:
        token = int(log_probs[0].argmax()) if self.greedy else self._draw(log_probs[0])
        self.append(token, float(log_probs[0, token]))
        return None

    def append(self, token: int, log_prob: float) -> None:
        """Add `token`. The end token finishes the text and is not part of `ids`."""
        self.log_prob += log_prob
        if token == self.end:
            self.finish = "stop"
            return
        self.ids.append(token)
        if len(self.ids) == self.decoding.max_new_tokens:
            self.finish = "length"

    def _draw(self, log_probs: Tensor) -> int:
        """Sample a token by inverse transform of one uniform number, so that it depends only on seed and row."""
        probabilities, tokens = (log_probs / self.decoding.temperature).softmax(-1).sort(descending=True)
        total = probabilities.double().cumsum(-1)
        kept = int((total - probabilities < self.decoding.top_p).sum())
        draw = torch.rand((), generator=self._generator, dtype=torch.float64) * total[kept - 1]
        return int(tokens[min(int((total[:kept] <= draw).sum()), kept - 1)])


class Beams:
    """Beam search for one text, as in transformers' `generate` (length penalty 1, no early stopping).

    Each step finds the 2 k likeliest continuations of the k running beams. Continuations among the first k that end are
    added to the finished beams. The first k continuations that do not end are the new running beams. The search ends
    when no running beam can be better than the worst of k finished beams.
    """

    def __init__(self, decoding: Decoding, start: int, end: int) -> None:
        self._decoding, self._end, self._num = decoding, end, decoding.num_beams
        self.tokens = [start] * self._num
        self._running: list[list[int]] = [[] for _ in range(self._num)]
        self._scores = torch.full((self._num,), _NEVER)
        self._scores[0] = 0.0
        self._finished: list[tuple[float, list[int], FinishReason]] = []
        self.finish: FinishReason | None = None

    @property
    def ids(self) -> list[int]:
        return self._finished[0][1] if self._finished else self._running[0]

    @property
    def log_prob(self) -> float:
        if not self._finished:
            return float(self._scores[0])
        score, ids, reason = self._finished[0]
        return score * (len(ids) + (reason == "stop"))

    def advance(self, log_probs: Tensor) -> list[int] | None:
        vocabulary = log_probs.shape[-1]
        total = (log_probs + self._scores[:, None]).view(-1)
        scores, places = total.topk(2 * self._num)
        sources, tokens = (places // vocabulary).tolist(), (places % vocabulary).tolist()
        texts = [[*self._running[source], token] for source, token in zip(sources, tokens, strict=True)]
        length = len(texts[0])
        ends = [token == self._end or length == self._decoding.max_new_tokens for token in tokens]
        self._finish_some((scores / length).tolist(), texts, ends)
        going = (scores + torch.tensor(ends) * _NEVER).topk(self._num).indices.tolist()
        self._running, self._scores = [texts[k] for k in going], scores[going] + torch.tensor(ends)[going] * _NEVER
        self.tokens = [tokens[k] for k in going]
        if all(ends) or not self._can_improve(length):
            self.finish = self._finished[0][2]
        return [sources[k] for k in going]

    def _finish_some(self, scores: list[float], texts: list[list[int]], ends: list[bool]) -> None:
        for score, text, ended in zip(scores[: self._num], texts, ends, strict=False):
            if not ended:
                continue
            stopped = text[-1] == self._end
            reason: FinishReason = "stop" if stopped else "length"
            self._finished.append((score, text[:-1] if stopped else text, reason))
        self._finished = sorted(self._finished, key=lambda one: -one[0])[: self._num]

    def _can_improve(self, length: int) -> bool:
        if len(self._finished) < self._num:
            return True
        return float(self._scores[0] / length) > self._finished[-1][0]


def create_search(decoding: Decoding, start: int, end: int) -> Line | Beams:
    """The search for `decoding`."""
    return Line(decoding, start, end) if decoding.num_beams == 1 else Beams(decoding, start, end)
