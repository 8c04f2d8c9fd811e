"""Which tokens of a batch belong to the adapters of one program."""

import torch
from peltier_backbone.norm import Norm
from torch import Tensor
from torch.nn import functional as F

from peltier_adapters.ops.kernels.runs import Runs


class ProgramTokens:
    """Groups and rows among `num_tokens` tokens. Group g has the tokens `starts[g]..starts[g + 1]`. Row r has the
    tokens `row_starts[r]..row_starts[r + 1]` and belongs to group `row_groups[r]`. Groups and rows may be empty at the
    end. All tables are int32 on the device, and the host does not read them. No group is longer than `longest`.

    Tokens outside the groups get 0 whatever their values, so a value that is not finite stays in its own row.
    """

    def __init__(
        self, starts: Tensor, row_starts: Tensor, row_groups: Tensor, num_tokens: int, longest: int | None = None
    ) -> None:
        self.row_groups, self.num_groups, self.num_tokens = row_groups, len(starts) - 1, num_tokens
        self._row_starts = row_starts
        tokens = torch.arange(num_tokens, dtype=torch.int32, device=starts.device)
        own, rows = place_of(starts, tokens), place_of(row_starts, tokens)
        inside = (own >= 0) & (own < self.num_groups)
        self.inside = inside[:, None]
        self._own = own.clamp(0, self.num_groups - 1)
        self._rows = rows.masked_fill(~inside, len(row_groups))
        self.runs = _runs(starts, num_tokens, num_tokens if longest is None else longest)

    def of_tokens(self, stack: Tensor) -> Tensor:
        """Each token's row of `stack` [groups, width], as [tokens, width]; 0 outside the groups."""
        return stack.index_select(0, self._own).masked_fill_(~self.inside, 0)

    def norm(self, x: Tensor, weight: Tensor, bias: Tensor | None, base: Norm) -> Tensor:
        """Norm `base` of x [tokens, width] with the weights [groups, width] of each token's group; tokens outside the
        groups get the weights of some group. It reads one weight row for each token, in one launch."""
        own = weight.index_select(0, self._own)[:, None]
        many = None if bias is None else bias.index_select(0, self._own)[:, None]
        return base.with_many_weights(x[:, None], own, many).flatten(0, 1)

    def row_mean(self, x: Tensor) -> Tensor:
        """Mean over each row's tokens, [tokens, width] -> [rows, width]; 0 for an empty row."""
        return torch.segment_reduce(x, "mean", offsets=self._row_starts, axis=0, unsafe=True, initial=0)

    def spread(self, x: Tensor) -> Tensor:
        """Each token's row of x, [rows, width] -> [tokens, width]; 0 outside the groups."""
        return torch.cat((x, x.new_zeros(1, x.shape[1]))).index_select(0, self._rows)


def place_of(starts: Tensor, tokens: Tensor) -> Tensor:
    """The number of the run that each of `tokens` is in: -1 before the first run, the number of runs after the last.
    Runs begin at `starts`, whose last entry is the end of the last run. Runs may be empty. All int32."""
    return torch.searchsorted(starts, tokens, right=True, out_int32=True) - 1


def _runs(starts: Tensor, num_tokens: int, longest: int) -> Runs:
    """The groups as runs, between two runs without a slot: the tokens before and after all groups."""
    slots = torch.arange(len(starts) - 1, dtype=torch.int32, device=starts.device)
    bounds = F.pad(F.pad(starts, (1, 0)), (0, 1), value=num_tokens)
    return Runs(bounds, F.pad(slots, (1, 1), value=-1), longest)
