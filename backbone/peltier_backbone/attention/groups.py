"""Groups of rows of similar length, which attend together in training."""

from collections.abc import Iterator, Sequence
from itertools import accumulate

import torch
from torch import Tensor

from peltier_backbone.attention.padding import Padding

# A row has at least this share of the length of the longest row of its group.
_MIN_SHARE = 2 / 3


class Group:
    """The row numbers [rows] of a group and the padded view of these rows."""

    def __init__(self, rows: Sequence[int], padding: Padding) -> None:
        self.rows, self.padding = torch.tensor(rows), padding


class Groups:
    """All rows of a span in groups. The padded scores that attention computes and keeps for its backward pass grow with
    the square of a group's longest row: for 32 sentences of 6 to 64 tokens, groups need two fifths of the scores."""

    def __init__(self, lengths: Sequence[int], seen: Sequence[int], device: torch.device) -> None:
        starts = list(accumulate(lengths, initial=0))
        runs = list(_runs(lengths))
        self._groups = [
            Group(
                run,
                Padding(
                    [lengths[row] for row in run],
                    device,
                    seen=[seen[row] for row in run],
                    starts=[starts[row] for row in run],
                ),
            )
            for run in runs
        ]
        tokens = torch.tensor([token for run in runs for row in run for token in range(starts[row], starts[row + 1])])
        self._back = tokens.argsort().to(device)

    def __iter__(self) -> Iterator[Group]:
        return iter(self._groups)

    def join(self, contexts: Sequence[Tensor]) -> Tensor:
        """The contexts of the groups, each [tokens of the group, size], in the order of the rows."""
        return torch.cat(list(contexts)).index_select(0, self._back)


def _runs(lengths: Sequence[int]) -> Iterator[list[int]]:
    """The row numbers of each group; longer rows come first."""
    run: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        if run and lengths[row] < _MIN_SHARE * lengths[run[0]]:
            yield run
            run = []
        run.append(row)
    yield run
