"""The likeliest next tokens of a decoder, in torch."""

import torch
from torch import Tensor


def find_likeliest(logits: Tensor) -> list[tuple[int, float]]:
    """The likeliest token of each row of `logits` [rows, vocabulary], the first of equal ones, and the logarithm of its
    probability in float32. A row with a NaN or a positive infinity has a log-probability that is not finite."""
    tops, tokens = logits.float().max(-1)
    log_probs = tops - logits.float().logsumexp(-1)
    # One copy from the device. Doubles hold either exactly.
    found = torch.stack((tokens.double(), log_probs.double())).cpu()
    return [(int(token), log_prob) for token, log_prob in found.t().tolist()]
