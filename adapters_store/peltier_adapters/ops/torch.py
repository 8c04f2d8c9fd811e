"""Ops by torch, group by group: the reference of the other backends, and the backend of training."""

from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, groupby

import torch
from peltier_backbone.linear.activation import Activation
from peltier_backbone.linear.norm import Norm
from torch import Tensor
from torch.nn import functional as F

from peltier_adapters.ops.backend import AdapterGroup, Backend, GroupedOps
from peltier_adapters.ops.op import (
    AddedBias,
    FusedMatmul,
    Gate,
    MatmulStep,
    Normed,
    NormWeights,
    Place,
    PlacedOp,
    Scaled,
    at,
)

ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    "none": lambda x: x,
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "swish": F.silu,
    "tanh": torch.tanh,
}


def multiply(step: MatmulStep, x: Tensor, flat: Tensor | None = None) -> Tensor:
    """act(x W + b), [rows, fold * in] -> [rows, fold * out]."""
    weight = at(step.weight, flat).to(x.dtype)
    blocks = x.reshape(-1, weight.shape[0])
    y = blocks @ weight if step.bias is None else torch.addmm(at(step.bias, flat).to(x.dtype), blocks, weight)
    return ACTIVATIONS[step.activation](y).view(len(x), -1)


def multiply_all(steps: Sequence[MatmulStep], x: Tensor) -> Tensor:
    """Apply the steps in order."""
    for step in steps:
        x = multiply(step, x)
    return x


def weigh(norm: NormWeights | None, base: Norm, x: Tensor, flat: Tensor | None) -> Tensor:
    """The norm of x with a group's own weights, or `base` if it has none."""
    if norm is None:
        return base(x)
    weight = base.weight if norm.weight is None else at(norm.weight, flat).to(x.dtype)
    bias = base.bias if norm.bias is None else at(norm.bias, flat).to(x.dtype)
    return base.with_weights(x, weight, bias)


class _Group:
    """One group and its tokens."""

    def __init__(self, group: AdapterGroup, lengths: Sequence[int], tokens: slice) -> None:
        self.group, self.program, self.tokens, self._lengths = group, group.program, tokens, lengths

    def act(self, op: PlacedOp, y: Tensor, x: Tensor, residual: Tensor | None) -> None:
        """Do to y, [tokens of the group, width], what the op does."""
        if isinstance(op, Scaled):
            factor = at(op.factor, self.group.flat).to(y.dtype)
            y[:, op.column : op.column + len(factor)].mul_(factor)
            return
        if isinstance(op, AddedBias):
            bias = at(op.bias, self.group.flat)
            change = bias if op.replaced is None else bias - op.replaced
            y[:, op.column : op.column + len(bias)].add_(change.to(y.dtype))
            return
        given = self._input(op, x, residual)
        scale = None if op.gate is None else self._spread(self.gate(op.gate, given)).to(y.dtype)
        *steps, last = op.steps
        inner = given
        for step in steps:
            inner = multiply(step, inner, self.group.flat)
        width = last.fold * last.weight.shape[1]
        own = y if width == y.shape[1] else y[:, op.column : op.column + width]
        self._add(last, own, inner, scale, op.gain)

    def _input(self, op: FusedMatmul, x: Tensor, residual: Tensor | None) -> Tensor:
        if op.reads == "x":
            return x
        assert residual is not None, "only sub-layers have sums to read"
        if isinstance(op.reads, Normed):
            assert self.program is not None, "it has this op"
            return weigh(self.program.norms.get(op.reads.index), op.reads.base, x + residual, self.group.flat)
        return x + residual

    def _add(self, step: MatmulStep, y: Tensor, x: Tensor, scale: Tensor | None, gain: float) -> None:
        """y += gain * scale * (x W + b), in place."""
        assert step.activation == "none", "an op ends with what it adds"
        if step.bias is not None and scale is not None:
            y.addcmul_(multiply(step, x, self.group.flat), scale, value=gain)
            return
        if step.bias is not None and gain != 1:
            y.add_(multiply(step, x, self.group.flat), alpha=gain)
            return
        x = x if gain == 1 else x * gain
        weight = at(step.weight, self.group.flat).to(x.dtype)
        blocks = (x if scale is None else x * scale).reshape(-1, weight.shape[0])
        (y.view(-1, weight.shape[1]) if step.fold > 1 else y).addmm_(blocks, weight)
        if step.bias is not None:
            y.add_(at(step.bias, self.group.flat).to(y.dtype))

    def gate(self, gate: Gate, x: Tensor) -> Tensor:
        """[rows, 1] in float32."""
        weight, bias = (at(one, self.group.flat).to(x.dtype) for one in (gate.weight, gate.bias))
        if gate.column is None:
            found = self._mean((x @ weight[:, None] + bias).float().sigmoid())
        else:
            shares = self._mean((x @ weight + bias).float().relu()).softmax(-1)
            found = shares[:, gate.column : gate.column + 1]
        self.group.record(gate.label, gate.number, found[:, 0])
        return found

    def _mean(self, x: Tensor) -> Tensor:
        """The mean over each row's tokens, [tokens, width] -> [rows, width]."""
        return torch.segment_reduce(x, "mean", lengths=self._sizes(x.device), axis=0, unsafe=True)

    def _sizes(self, device: torch.device) -> Tensor:
        return torch.tensor(self._lengths, device=device)

    def _spread(self, x: Tensor) -> Tensor:
        """[rows, width] -> [tokens, width]."""
        return torch.repeat_interleave(x, self._sizes(x.device), 0, output_size=sum(self._lengths))


class TorchOps(GroupedOps):
    """`GroupedOps` in a loop over groups. A single group gets whole tensors, so that autograd records no views."""

    def __init__(self, groups: Sequence[AdapterGroup], lengths: Sequence[int]) -> None:
        starts = [0, *accumulate(lengths)]
        ends = list(accumulate(group.rows for group in groups))
        programs = {group.program for group in groups if group.program is not None}
        self._acting = frozenset(place for program in programs for place in program.placed)
        self._groups = [
            _Group(group, lengths[end - group.rows : end], slice(starts[end - group.rows], starts[end]))
            for group, end in zip(groups, ends, strict=True)
        ]

    def act(self, site: str, number: int, y: Tensor, x: Tensor, residual: Tensor | None = None) -> Tensor:
        if (site, number) not in self._acting:
            return y
        if len(self._groups) > 1 and torch.is_grad_enabled():
            return self._act_apart((site, number), y, x, residual)
        acting = [(one, ops) for one in self._groups if one.program and (ops := one.program.placed.get((site, number)))]
        if x is y and torch.is_grad_enabled():
            y = y.clone()  # the first step keeps its input for the backward pass
        for one, ops in acting:
            for op in ops:
                one.act(op, self._of(one, y), self._of(one, x), None if residual is None else self._of(one, residual))
        return y

    def _act_apart(self, place: Place, y: Tensor, x: Tensor, residual: Tensor | None) -> Tensor:
        """`act` on tensors of each group's own. The backward pass of a change in place of a slice of y would copy all
        of y for each group."""
        sizes = [one.tokens.stop - one.tokens.start for one in self._groups]
        ys = torch.split(y, sizes)
        xs = ys if x is y else torch.split(x, sizes)
        residuals = [None] * len(sizes) if residual is None else torch.split(residual, sizes)
        pieces = []
        for one, own, given, rest in zip(self._groups, ys, xs, residuals, strict=True):
            ops = one.program.placed.get(place) if one.program else None
            changed = own.clone() if ops else own
            for op in ops or ():
                one.act(op, changed, given, rest)
            pieces.append(changed)
        return torch.cat(pieces)

    def norm(self, index: int, x: Tensor, base: Norm, residual: Tensor | None = None) -> Tensor:
        if not self._has_norms:
            return base(x, residual)
        x = x if residual is None else x + residual
        runs = list(self._norms(index))
        pieces = torch.split(x, [tokens.stop - tokens.start for tokens, _, _ in runs])
        return _join([weigh(own, base, piece, flat) for piece, (_, own, flat) in zip(pieces, runs, strict=True)])

    @cached_property
    def _has_norms(self) -> bool:
        return any(one.program and one.program.norms for one in self._groups)

    def _norms(self, index: int) -> Iterator[tuple[slice, NormWeights | None, Tensor | None]]:
        """Runs of tokens with their norm weights; neighbouring groups without own weights form one run."""
        for own, run in groupby(self._groups, lambda one: one.program.norms.get(index) if one.program else None):
            members = list(run)
            if own is None:
                yield slice(members[0].tokens.start, members[-1].tokens.stop), None, None
            else:
                yield from ((one.tokens, own, one.group.flat) for one in members)

    def prefix_gates(self, number: int, x: Tensor) -> Tensor | None:
        found = []
        for one in self._groups:
            assert one.program is not None, "all rows of these groups have prefixes"
            gate = one.program.prefixes[number].gate
            found.append(x.new_ones(one.group.rows, 1) if gate is None else one.gate(gate, self._of(one, x)))
        return _join(found)

    def _of(self, one: _Group, tensor: Tensor) -> Tensor:
        return tensor if len(self._groups) == 1 else tensor[one.tokens]


def _join(pieces: Sequence[Tensor]) -> Tensor:
    return pieces[0] if len(pieces) == 1 else torch.cat(list(pieces))


class TorchBackend(Backend):
    """See `Backend`."""

    name = "torch"

    def group(self, groups: Sequence[AdapterGroup], lengths: Sequence[int]) -> TorchOps:
        return TorchOps(groups, lengths)


TORCH = TorchBackend()
