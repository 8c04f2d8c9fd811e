"""Conversion between packed rows and padded ones, for the few products that need padding, and the groups of rows of
similar length that training pads together."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import accumulate

import torch
from torch import Tensor

# A row has at least this share of the length of the longest row of its group.
_MIN_SHARE = 2 / 3


class Padding:
    """The padded view of rows of `lengths` tokens. Queries attend to the first `seen` tokens of a row (all if None).
    `starts` is the first token of each row, if the rows do not lie back to back. Calls share what depends only on the
    lengths."""

    def __init__(
        self,
        lengths: Sequence[int],
        device: torch.device,
        seen: Sequence[int] | None = None,
        starts: Sequence[int] | None = None,
    ) -> None:
        self._lengths, self.device = tuple(lengths), device
        self._seen = self._lengths if seen is None else tuple(seen)
        self._starts = starts
        self.rows, self.width = len(self._lengths), max(self._lengths)
        self.uniform = all(length == self.width for length in self._lengths)
        self.all_seen = all(length == self.width for length in self._seen)

    def pad(self, x: Tensor) -> Tensor:
        """[tokens, size] -> [rows, width, size]; a pad gets its row's first token, a finite value of the row."""
        padded = x if self.uniform and self._starts is None else x.index_select(0, self._gather)
        return padded.view(self.rows, self.width, -1)

    def unpad(self, x: Tensor) -> Tensor:
        """[rows, width, size] -> [tokens, size]."""
        flat = x.reshape(self.rows * self.width, -1)
        return flat if self.uniform else flat.index_select(0, self._scatter)

    def mask(self, dtype: torch.dtype) -> Tensor:
        """The mask that hides pads, [rows, width]: -inf on a pad, else 0."""
        mask = torch.zeros(self.rows, self.width, dtype=dtype)
        return mask.masked_fill_(~self._before(self._seen), float("-inf")).to(self.device)

    def near_mask(self, dtype: torch.dtype, window: int) -> Tensor:
        """The mask that also hides tokens more than `window` away, [rows, width (queries), width (keys)]. A pad sees
        all tokens of its row: without any its softmax would not be a number."""
        if (dtype, window) not in self._near_masks:
            places = torch.arange(self.width)
            near = (places - places[:, None]).abs() <= window
            seen = (near | ~self._real[..., None]) & self._before(self._seen)[:, None]
            mask = torch.zeros(seen.shape, dtype=dtype).masked_fill_(~seen, float("-inf"))
            self._near_masks[dtype, window] = mask.to(self.device)
        return self._near_masks[dtype, window]

    @cached_property
    def _near_masks(self) -> dict[tuple[torch.dtype, int], Tensor]:
        return {}

    @cached_property
    def _real(self) -> Tensor:
        """Whether each position holds a token, [rows, width]."""
        return self._before(self._lengths)

    def _before(self, lengths: Sequence[int]) -> Tensor:
        return torch.arange(self.width) < torch.tensor(lengths)[:, None]

    @cached_property
    def _gather(self) -> Tensor:
        """The index of the token at each padded position, [rows * width]."""
        starts = torch.tensor(self._starts or list(accumulate(self._lengths, initial=0))[:-1])
        return (starts[:, None] + torch.arange(self.width) * self._real).view(-1).to(self.device)

    @cached_property
    def _scatter(self) -> Tensor:
        """The padded position of each token, [tokens]."""
        return self._real.view(-1).nonzero().view(-1).to(self.device)


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
