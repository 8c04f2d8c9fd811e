"""Ragged batches without padding: runs of tokens that share one adapter's weights.

A group is a run of neighbouring rows of one slot; weights carry a leading group dimension [G, …] and are gathered once
a batch. On a slice of one group every operation is one plain call, which is what training uses; groups of equally many
tokens, as in a decoder's step, share one batched product.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

import torch
from torch import Tensor

from peltier_adapters.kernels import choice

if TYPE_CHECKING:
    from peltier_adapters.kernels.launcher import Launcher

# Up to so many tokens a group a product in bfloat16 is slower on the CPU than one in float32 with its casts.
_SMALL = 64


class Reweighted(Protocol):
    """A norm of the backbone that takes other weights."""

    def with_weights(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The norm of x [tokens, width] with weight and bias [width]."""

    def with_many_weights(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The norm of x [groups, tokens, width] with weight and bias [groups, 1, width]."""


class Segments:
    """Rows of `row_lengths` tokens; `row_groups` numbers each row's group: 0, 0, 1, …, ascending without gaps."""

    def __init__(self, row_lengths: Sequence[int], row_groups: Sequence[int], device: torch.device) -> None:
        self.row_lengths = tuple(row_lengths)
        self.row_groups = tuple(row_groups)
        self.device = device
        self.num_groups = self.row_groups[-1] + 1
        lengths = [0] * self.num_groups
        for length, group in zip(self.row_lengths, self.row_groups, strict=True):
            lengths[group] += length
        self._bounds = {1: _bounds(lengths)}
        self._even = len(set(lengths)) == 1
        self._small = self.num_groups > 1 and sum(lengths) <= _SMALL * self.num_groups

    def compute_dtype(self, served: torch.dtype) -> torch.dtype:
        """In which dtype products a group are fastest where the backbone computes in `served`; never a coarser one.
        One group alone, as in training, keeps the backbone's: its products are as large as the batch."""
        return torch.float32 if self._small and self.device.type == "cpu" else served

    @cached_property
    def launcher(self) -> "Launcher | None":
        """The kernels of a GPU; None where torch's own products serve: on the CPU, for one group, and in training."""
        if self.num_groups == 1 or torch.is_grad_enabled() or not choice.use_kernels(self.device):
            return None
        from peltier_adapters.kernels.launcher import Launcher  # needs Triton

        return Launcher([last - first for first, last in self._bounds[1]], self.device)

    @cached_property
    def groups(self) -> Tensor:
        """Group of each row, [rows]."""
        return torch.tensor(self.row_groups, device=self.device)

    @cached_property
    def rows(self) -> Tensor:
        """Row of each token, [tokens]."""
        lengths = torch.tensor(self.row_lengths, device=self.device)
        return torch.repeat_interleave(torch.arange(len(self.row_lengths), device=self.device), lengths)

    @cached_property
    def _token_groups(self) -> Tensor:
        """Group of each token, [tokens]."""
        return self.groups.index_select(0, self.rows)

    @cached_property
    def _row_lengths(self) -> Tensor:
        return torch.tensor(self.row_lengths, device=self.device)

    def _ranges(self, fold: int) -> list[tuple[int, int]]:
        if fold not in self._bounds:
            self._bounds[fold] = [(first * fold, last * fold) for first, last in self._bounds[1]]
        return self._bounds[fold]

    def linear(self, x: Tensor, weight: Tensor, bias: Tensor | None = None, *, fold: int = 1) -> Tensor:
        """[tokens * fold, in] @ [G, in, out] (+ [G, out]) -> [tokens * fold, out]."""
        if self.num_groups == 1:
            return x @ weight[0] if bias is None else torch.addmm(bias[0], x, weight[0])
        if self.launcher is not None:
            return self.launcher.linear(x, weight, bias, fold)
        if weight.shape[-1] == 1 and bias is not None:
            return self._scores(x, weight, bias, fold)
        if self._even:
            grouped = self._grouped(x)
            y = torch.bmm(grouped, weight) if bias is None else torch.baddbmm(bias[:, None], grouped, weight)
            return y.flatten(0, 1)
        pieces = [x[first:last] for first, last in self._ranges(fold)]
        if bias is None:
            return torch.cat([piece @ w for piece, w in zip(pieces, weight.unbind(), strict=True)])
        triples = zip(bias.unbind(), pieces, weight.unbind(), strict=True)
        return torch.cat([torch.addmm(b, piece, w) for b, piece, w in triples])

    def _scores(self, x: Tensor, weight: Tensor, bias: Tensor, fold: int) -> Tensor:
        """`linear` to one column, at which the general products are slow: by 9 times for 8 groups of 64 tokens."""
        if self._even:
            scores = torch.baddbmm(bias[:, None], weight.transpose(1, 2), self._grouped(x).transpose(1, 2))
            return scores.view(-1, 1)
        triples = zip(bias.unbind(), self._ranges(fold), weight.squeeze(-1).unbind(), strict=True)
        return torch.cat([torch.addmv(b, x[first:last], w) for b, (first, last), w in triples])[:, None]

    def add_linear(self, y: Tensor, x: Tensor, weight: Tensor, *, fold: int = 1) -> None:
        """y += x @ weight, group by group, in place."""
        if self.num_groups == 1:
            y.addmm_(x, weight[0])
            return
        if self.launcher is not None:
            self.launcher.add_linear(y, x, weight, fold)
            return
        if self._even:
            self._grouped(y).baddbmm_(self._grouped(x), weight)
            return
        for (first, last), w in zip(self._ranges(fold), weight.unbind(), strict=True):
            y[first:last].addmm_(x[first:last], w)

    def add(self, y: Tensor, bias: Tensor) -> None:
        """y [tokens, width] += bias [G, width], in place."""
        if self.num_groups == 1:
            y.add_(bias[0])
            return
        if self._even:
            self._grouped(y).add_(bias[:, None])
            return
        if self.launcher is not None:
            y.add_(bias.index_select(0, self._token_groups))
            return
        for (first, last), b in zip(self._ranges(1), bias.unbind(), strict=True):
            y[first:last].add_(b)

    def norm(self, x: Tensor, weight: Tensor, bias: Tensor | None, base: Reweighted) -> Tensor:
        """`base` of x [tokens, width] with weight and bias [G, width]."""
        biases = [None] * self.num_groups if bias is None else bias.unbind()
        if self.num_groups == 1:
            return base.with_weights(x, weight[0], biases[0])
        if self._even:
            many = None if bias is None else bias[:, None]
            return base.with_many_weights(self._grouped(x), weight[:, None], many).flatten(0, 1)
        if self.launcher is not None:  # each token with weights of its own: bandwidth that a GPU has, for one launch
            own = weight.index_select(0, self._token_groups)[:, None]
            many = None if bias is None else bias.index_select(0, self._token_groups)[:, None]
            return base.with_many_weights(x[:, None], own, many).flatten(0, 1)
        triples = zip(self._ranges(1), weight.unbind(), biases, strict=True)
        return torch.cat([base.with_weights(x[first:last], w, b) for (first, last), w, b in triples])

    def _grouped(self, x: Tensor) -> Tensor:
        """[tokens * fold, width] -> [G, tokens of a group * fold, width], a view."""
        return x.view(self.num_groups, -1, x.shape[1])

    def row_mean(self, x: Tensor) -> Tensor:
        """Mean over each row's own tokens, [tokens, width] -> [rows, width]; pads do not exist here."""
        return torch.segment_reduce(x, "mean", lengths=self._row_lengths, axis=0, unsafe=True)

    def spread(self, x: Tensor) -> Tensor:
        """[rows, width] -> [tokens, width]."""
        return x.index_select(0, self.rows)


def _bounds(lengths: Sequence[int]) -> list[tuple[int, int]]:
    ends = list(accumulate(lengths))
    return list(zip([0, *ends], ends, strict=False))
