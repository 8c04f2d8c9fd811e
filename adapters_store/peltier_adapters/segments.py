"""Ragged batches without padding: runs of tokens that share one adapter's weights.

A group is a run of neighbouring rows of one slot; weights carry a leading group dimension [G, …], laid side by side
once a batch unless a `Chain` reads them where they lie. Native kernels take all groups in one call on the CPU, Triton's
do on a GPU; without either, and in training, torch takes them one by one. On a slice of one group that is one plain
call, which is what training uses.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Protocol

import torch
from peltier_backbone.native import library
from peltier_backbone.native.chain import Chain, Product
from peltier_backbone.native.library import Activation, Library, NormKind, Runs
from torch import Tensor
from torch.nn import functional as F

from peltier_adapters.kernels import choice

if TYPE_CHECKING:
    from peltier_adapters.kernels.launcher import Launcher

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "swish": F.silu,
}


class Reweighted(NormKind, Protocol):
    """A norm of the backbone that takes other weights."""

    def with_weights(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The norm of x [tokens, width] with weight and bias [width]."""

    def with_many_weights(self, x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """The norm of x [groups, tokens, width] with weight and bias [groups, 1, width]."""


class Segments:
    """Rows of `row_lengths` tokens; `row_groups` numbers each row's group: 0, 0, 1, …, ascending without gaps. The
    backbone computes in `dtype`."""

    def __init__(
        self, row_lengths: Sequence[int], row_groups: Sequence[int], device: torch.device,
        dtype: torch.dtype = torch.float32,
    ) -> None:  # fmt: skip
        self.row_lengths = tuple(row_lengths)
        self.row_groups = tuple(row_groups)
        self.device, self._dtype = device, dtype
        self.num_groups = self.row_groups[-1] + 1
        lengths = [0] * self.num_groups
        for length, group in zip(self.row_lengths, self.row_groups, strict=True):
            lengths[group] += length
        self._lengths = lengths
        self._bounds = {1: _bounds(lengths)}

    @cached_property
    def native(self) -> Library | None:
        """The kernels of a CPU, where they serve."""
        return None if choice.use_kernels(self.device) else library.serving_library(self.device, self._dtype)

    @cached_property
    def _runs(self) -> Runs:
        return Runs(self._lengths)

    @cached_property
    def _row_runs(self) -> Runs:
        return Runs(self.row_lengths)

    @property
    def weights_dtype(self) -> torch.dtype:
        """Of what parts keep: the backbone's, but native kernels read float32, and what they compute between two
        products is float32."""
        return self._dtype if self.native is None else torch.float32

    @cached_property
    def launcher(self) -> "Launcher | None":
        """The kernels of a GPU; None where torch's own products serve: on the CPU, for one group, and in training."""
        if self.num_groups == 1 or torch.is_grad_enabled() or not choice.use_kernels(self.device):
            return None
        from peltier_adapters.kernels.launcher import Launcher  # needs Triton

        return Launcher(self._lengths, self.device)

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

    def chain(self, products: Sequence[Product]) -> Chain:
        """All of `products` in one call, where `native` kernels serve."""
        assert self.native is not None, "callers ask whether they serve"
        return Chain(self.native, products, self._runs)

    def _ranges(self, fold: int) -> list[tuple[int, int]]:
        if fold not in self._bounds:
            self._bounds[fold] = [(first * fold, last * fold) for first, last in self._bounds[1]]
        return self._bounds[fold]

    def linear(
        self, x: Tensor, weight: Tensor, bias: Tensor | None = None, *, fold: int = 1, activation: Activation = "none"
    ) -> Tensor:
        """act([tokens * fold, in] @ [G, in, out] (+ [G, out])) -> [tokens * fold, out]."""
        if self.native is not None:
            y = torch.empty(len(x), weight.shape[-1])
            self.native.linear(y, x, weight, bias, self._runs, fold=fold, activation=activation)
            return y
        return ACTIVATIONS[activation](self._linear(x, weight, bias, fold))

    def _linear(self, x: Tensor, weight: Tensor, bias: Tensor | None, fold: int) -> Tensor:
        if self.num_groups == 1:
            return x @ weight[0] if bias is None else torch.addmm(bias[0], x, weight[0])
        if self.launcher is not None:
            return self.launcher.linear(x, weight, bias, fold)
        pieces = [x[first:last] for first, last in self._ranges(fold)]
        if bias is None:
            return torch.cat([piece @ w for piece, w in zip(pieces, weight.unbind(), strict=True)])
        triples = zip(bias.unbind(), pieces, weight.unbind(), strict=True)
        return torch.cat([torch.addmm(b, piece, w) for b, piece, w in triples])

    def add_linear(  # noqa: PLR0913 - what a product is made of
        self, y: Tensor, x: Tensor, weight: Tensor, bias: Tensor | None = None, *, fold: int = 1,
        scale: Tensor | None = None,
    ) -> None:  # fmt: skip
        """y += (x @ weight (+ bias)) * scale, group by group, in place; `scale` is [tokens * fold, 1]."""
        if self.native is not None:
            self.native.linear(y, x, weight, bias, self._runs, fold=fold, scale=scale, add=True)
        elif scale is not None and bias is not None:
            y.addcmul_(self._linear(x, weight, bias, fold), scale)
        else:
            self._add_linear(y, x if scale is None else x * scale, weight, fold)
            if bias is not None:
                self.add(y, bias)

    def _add_linear(self, y: Tensor, x: Tensor, weight: Tensor, fold: int) -> None:
        if self.num_groups == 1:
            y.addmm_(x, weight[0])
        elif self.launcher is not None:
            self.launcher.add_linear(y, x, weight, fold)
        else:
            for (first, last), w in zip(self._ranges(fold), weight.unbind(), strict=True):
                y[first:last].addmm_(x[first:last], w)

    def add(self, y: Tensor, bias: Tensor) -> None:
        """y [tokens, width] += bias [G, width], in place."""
        if self.native is not None:
            self.native.add(y, bias, self._runs)
        elif self.num_groups == 1:
            y.add_(bias[0])
        elif self.launcher is not None:
            y.add_(bias.index_select(0, self._token_groups))
        else:
            for (first, last), b in zip(self._ranges(1), bias.unbind(), strict=True):
                y[first:last].add_(b)

    def norm(
        self, x: Tensor, weight: Tensor, bias: Tensor | None, base: Reweighted, residual: Tensor | None = None
    ) -> Tensor:
        """`base` of x [tokens, width], or of x + residual, with weight and bias [G, width]."""
        if self.native is not None:
            return self.native.norm(x, residual, weight, bias, self._runs, base)
        return self._norm(x if residual is None else x + residual, weight, bias, base)

    def _norm(self, x: Tensor, weight: Tensor, bias: Tensor | None, base: Reweighted) -> Tensor:
        biases = [None] * self.num_groups if bias is None else bias.unbind()
        if self.num_groups == 1:
            return base.with_weights(x, weight[0], biases[0])
        if self.launcher is not None:  # each token with weights of its own: bandwidth that a GPU has, for one launch
            own = weight.index_select(0, self._token_groups)[:, None]
            many = None if bias is None else bias.index_select(0, self._token_groups)[:, None]
            return base.with_many_weights(x[:, None], own, many).flatten(0, 1)
        triples = zip(self._ranges(1), weight.unbind(), biases, strict=True)
        return torch.cat([base.with_weights(x[first:last], w, b) for (first, last), w, b in triples])

    def gate(self, x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
        """The mean over each row's tokens of sigmoid(x w + b), [tokens, in], [G, in] and [G] -> [rows, 1]."""
        if self.native is not None:
            return self.native.gate(x, weight, bias, self._row_runs, self.groups)
        return self.row_mean(self._linear(x, weight[:, :, None], bias[:, None], 1).float().sigmoid())

    def row_mean(self, x: Tensor) -> Tensor:
        """Mean over each row's own tokens, [tokens, width] -> [rows, width]; pads do not exist here."""
        return torch.segment_reduce(x, "mean", lengths=self._row_lengths, axis=0, unsafe=True)

    def spread(self, x: Tensor) -> Tensor:
        """[rows, width] -> [tokens, width]."""
        return x.index_select(0, self.rows)


def _bounds(lengths: Sequence[int]) -> list[tuple[int, int]]:
    ends = list(accumulate(lengths))
    return list(zip([0, *ends], ends, strict=False))
