"""The tokens of one bank, wherever they stand among those of a batch."""

import torch
from torch import Tensor
from torch.nn import functional as F

from peltier_adapters.graphs.indices import place_of
from peltier_adapters.kernels.launcher import Launcher
from peltier_adapters.kernels.runs import Runs
from peltier_adapters.segments import Reweighted, Segments


class _Launcher(Launcher):
    """Over runs whose lengths the device alone knows."""

    def __init__(self, runs: Runs) -> None:
        self.runs = runs


class Window(Segments):
    """`Segments` over all tokens of a batch, of which those outside are left as they are. Group g is the tokens
    `starts[g]..starts[g + 1]`, row r `row_starts[r]..row_starts[r + 1]` of group `row_groups[r]`; groups and rows may
    be empty at the end. All int32 on the device.

    What outside tokens are given elsewhere is 0, whatever they hold: another row's number that is not finite stays its
    own.
    """

    def __init__(
        self, starts: Tensor, row_starts: Tensor, row_groups: Tensor, num_tokens: int, dtype: torch.dtype
    ) -> None:
        self.device, self.num_groups, self.groups = starts.device, len(starts) - 1, row_groups
        self.native, self._dtype = None, dtype  # native kernels ask how long groups are
        self._row_starts = row_starts
        tokens = torch.arange(num_tokens, dtype=torch.int32, device=starts.device)
        own, rows = place_of(starts, tokens), place_of(row_starts, tokens)
        inside = (own >= 0) & (own < self.num_groups)
        self.inside = inside[:, None]
        self._own = own.clamp(0, self.num_groups - 1)
        self.rows = rows.masked_fill(~inside, len(row_groups))
        self.launcher = _Launcher(_runs(starts, num_tokens))

    def add(self, y: Tensor, bias: Tensor) -> None:
        """As `Segments.add`."""
        y.add_(bias.index_select(0, self._own).masked_fill_(~self.inside, 0))

    def _norm(self, x: Tensor, weight: Tensor, bias: Tensor | None, base: Reweighted) -> Tensor:
        """As `Segments._norm`; outside with some group's weights."""
        own = weight.index_select(0, self._own)[:, None]
        many = None if bias is None else bias.index_select(0, self._own)[:, None]
        return base.with_many_weights(x[:, None], own, many).flatten(0, 1)

    def row_mean(self, x: Tensor) -> Tensor:
        """As `Segments.row_mean`; 0 for an empty row."""
        return torch.segment_reduce(x, "mean", offsets=self._row_starts, axis=0, unsafe=True, initial=0)

    def spread(self, x: Tensor) -> Tensor:
        """As `Segments.spread`; 0 outside."""
        return torch.cat((x, x.new_zeros(1, x.shape[1]))).index_select(0, self.rows)


def _runs(starts: Tensor, num_tokens: int) -> Runs:
    """The groups between the tokens before them and those behind, which have no slot. A run may be as long as all."""
    slots = torch.arange(len(starts) - 1, dtype=torch.int32, device=starts.device)
    bounds = F.pad(F.pad(starts, (1, 0)), (0, 1), value=num_tokens)
    return Runs(bounds, F.pad(slots, (1, 1), value=-1), num_tokens)
