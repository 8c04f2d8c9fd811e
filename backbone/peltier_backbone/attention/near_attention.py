"""Local attention of one row in torch: each block of queries attends to the keys that are near to it."""

import torch
from torch import Tensor
from torch.nn import functional as F

# So many queries at a time: the work grows with the length of a row, not with its square.
_BLOCK = 256


def attend_near(query: Tensor, key: Tensor, value: Tensor, prefix: tuple[Tensor, Tensor] | None, window: int) -> Tensor:
    """The context of queries that attend to `prefix` keys and values and to the tokens at most `window` away; all are
    [heads, tokens, head size]."""
    length, context = query.shape[1], list[Tensor]()
    for first in range(0, length, _BLOCK):
        last = min(first + _BLOCK, length)
        low, high = max(first - window, 0), min(last + window, length)
        keys, values = key[:, low:high], value[:, low:high]
        seen = (torch.arange(low, high) - torch.arange(first, last)[:, None]).abs() <= window
        if prefix is not None:
            keys, values = torch.cat((prefix[0], keys), 1), torch.cat((prefix[1], values), 1)
            seen = F.pad(seen, (prefix[0].shape[1], 0), value=True)
        found = F.scaled_dot_product_attention(query[None, :, first:last], keys[None], values[None], seen)
        context.append(found[0])
    return torch.cat(context, 1)
