"""The late interaction of multi-vector embeddings in training."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence


def similarities(vectors: Tensor, lengths: Sequence[int]) -> Tensor:
    """The mean MaxSim of each first text of pairs with each second text, [pairs, pairs] (`vectors.similarity`). The
    outputs `vectors` [tokens, size] are those of rows of these lengths; neighbours are pairs.

    The cosines of one first text with all second texts are in memory at a time, and only the places of the largest
    are kept for the gradient."""
    rows = torch.split(F.normalize(vectors, dim=-1), list(lengths))
    documents = pad_sequence(rows[1::2], batch_first=True)  # [pairs, longest, size]
    sizes = torch.tensor(lengths[1::2], device=vectors.device)
    missing = torch.arange(documents.shape[1], device=vectors.device) >= sizes[:, None]
    lines = [
        torch.einsum("qs,pls->qpl", query, documents).masked_fill(missing, -torch.inf).max(-1).values.mean(0)
        for query in rows[::2]
    ]
    return torch.stack(lines)
