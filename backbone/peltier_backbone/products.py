"""Attention as plain products: unlike the fused kernels, they are fast with a bias on the CPU and tell their sum."""

from typing import NamedTuple

import torch
from torch import Tensor

from peltier_backbone.attention import Prefix


class Attended(NamedTuple):
    """`context` [..., queries, head size]; `total` [..., queries], the log of the sum of all exponentiated logits, in
    float32 where it was asked for."""

    context: Tensor
    total: Tensor | None


def attend(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, *, total: bool) -> Attended:
    """softmax(query keys^T + bias) values, unscaled as T5 is; `bias` is broadcast to [..., queries, keys]."""
    transposed = keys.transpose(-1, -2)
    if bias is not None and query.dim() == 3:
        logits = torch.baddbmm(bias, query, transposed)
    else:
        logits = torch.matmul(query, transposed)
        logits = logits if bias is None else logits.add_(bias)
    weights = logits.softmax(-1, dtype=torch.float32).to(values.dtype)
    return Attended(torch.matmul(weights, values), logits.float().logsumexp(-1) if total else None)


def merge_prefix(query: Tensor, attended: Attended, prefix: Prefix) -> Tensor:
    """The context if `prefix` had stood in front of the keys: what was attended to counts as one key with its total.

    `query` is [rows, heads, queries, head size], the prefix [rows, heads, prefix, head size], its bias 0.
    """
    assert attended.total is not None, "callers with a prefix ask for it"
    logits = torch.matmul(query, prefix.keys.transpose(-1, -2)).float()
    weights = torch.cat((attended.total[..., None], logits), -1).softmax(-1).to(query.dtype)
    return weights[..., :1] * attended.context + torch.matmul(weights[..., 1:], prefix.values)
