"""Span corruption, the pretraining objective of T5 (Raffel et al. 2020, sections 3.1.4 and 3.3.4).

Random spans of a text are removed. The input has a sentinel in place of each span. The target has each sentinel
followed by its span. Both end with </s>.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

EOS = 1
TokenIds = NDArray[np.int64]


@dataclass(frozen=True)
class SpanCorruption:
    """Removes `num_noise` of `text_length` tokens in `num_spans` spans. Every input has `input_length` tokens and every
    target `target_length`, so nothing is padded.

    `first_sentinel` is the id of <extra_id_0>, the last of the vocabulary; the next sentinels count downwards."""

    text_length: int
    num_noise: int
    num_spans: int
    first_sentinel: int

    @property
    def input_length(self) -> int:
        """The remaining tokens, a sentinel per span, and </s>."""
        return self.text_length - self.num_noise + self.num_spans + 1

    @property
    def target_length(self) -> int:
        """The removed tokens, a sentinel per span, and </s>."""
        return self.num_noise + self.num_spans + 1

    def corrupt(self, text: TokenIds, rng: np.random.Generator) -> tuple[TokenIds, TokenIds]:
        """The input and the target of `text` [text_length] with spans drawn by `rng`."""
        noise = self._noise(rng)
        return self._delimited(text, noise), self._delimited(text, ~noise)

    def _noise(self, rng: np.random.Generator) -> NDArray[np.bool_]:
        """Which tokens are removed [text_length]: kept and removed spans alternate, beginning with a kept one."""
        kept = _partition(self.text_length - self.num_noise, self.num_spans, rng)
        noise = _partition(self.num_noise, self.num_spans, rng)
        lengths = np.stack([kept, noise], axis=1).ravel()
        return np.repeat(np.arange(2 * self.num_spans) % 2 == 1, lengths)

    def _delimited(self, text: TokenIds, hidden: NDArray[np.bool_]) -> TokenIds:
        """`text` with each run of `hidden` tokens as one sentinel, and </s>."""
        begins = hidden & ~np.concatenate([[False], hidden[:-1]])
        sentinels = self.first_sentinel + 1 - np.cumsum(begins)
        return np.append(np.where(begins, sentinels, text)[begins | ~hidden], EOS)


def fit_length(input_length: int, first_sentinel: int, density: float = 0.15, mean_span: float = 3.0) -> SpanCorruption:
    """The corruption for the longest texts whose inputs have at most `input_length` tokens."""
    lengths = range(2, 2 * input_length)
    fits = [_of_length(length, first_sentinel, density, mean_span) for length in lengths]
    return max((fit for fit in fits if fit.input_length <= input_length), key=lambda fit: fit.text_length)


def _of_length(text_length: int, first_sentinel: int, density: float, mean_span: float) -> SpanCorruption:
    num_noise = min(max(round(text_length * density), 1), text_length - 1)
    num_spans = max(round(num_noise / mean_span), 1)
    return SpanCorruption(text_length, num_noise, min(num_spans, text_length - num_noise), first_sentinel)


def _partition(total: int, parts: int, rng: np.random.Generator) -> TokenIds:
    """Positive lengths [parts] with the sum `total`, drawn uniformly from all such partitions."""
    cuts = np.sort(rng.choice(total - 1, parts - 1, replace=False)) + 1
    return np.diff(cuts, prepend=0, append=total)
