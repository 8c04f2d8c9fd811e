"""The likeliest next tokens of a decoder."""

from typing import NamedTuple

import torch
from torch import Tensor


class Likeliest(NamedTuple):
    """`tokens` [rows] and the logarithms of their probabilities [rows] in float32."""

    tokens: Tensor
    log_probs: Tensor

    def read(self) -> list[tuple[int, float]]:
        """Both on the host, after one copy from the device. Doubles hold either exactly."""
        tokens, log_probs = torch.stack((self.tokens.double(), self.log_probs.double())).cpu().tolist()
        return [(int(token), log_prob) for token, log_prob in zip(tokens, log_probs, strict=True)]


def find_likeliest(logits: Tensor) -> Likeliest:
    """The likeliest token of each row of `logits` [rows, vocabulary], the first of equal ones. A row with a NaN or
    a positive infinity has a log-probability that is not finite."""
    tops, tokens = logits.float().max(-1)
    return Likeliest(tokens, tops - logits.float().logsumexp(-1))
