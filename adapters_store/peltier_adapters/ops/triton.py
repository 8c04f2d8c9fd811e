"""Ops by Triton kernels on a GPU: one launch for each site runs the ops of all adapters of a program.

One launch for each batch copies their weights to a stack. Tables on the device (`ProgramTokens`) say which tokens
belong to which adapter. `graphs/` captures the same operations with tables and stacks at fixed addresses.
"""

from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate, groupby, pairwise

import torch
from peltier_backbone.attention import Prefix
from peltier_backbone.norm import Norm
from torch import Tensor

from peltier_adapters.ops.backend import AdapterGroup, GroupedOps
from peltier_adapters.ops.kernels import bottleneck, compacter, linear, lora
from peltier_adapters.ops.op import AddedBias, FusedMatmul, Gate, MatmulStep, Normed, NormWeights, Program, at
from peltier_adapters.ops.program_tokens import ProgramTokens
from peltier_adapters.ops.torch import ACTIVATIONS

# The result of the first of two maps stays in registers, so it must not be wider.
MAX_SIZE = 64


class ProgramOps:
    """The ops of one program for its `tokens`, with the stack of its adapters' weights [groups, elements]. x and y have
    all tokens of the batch."""

    def __init__(self, program: Program, tokens: ProgramTokens, stack: Tensor) -> None:
        self.program, self.tokens, self._stack = program, tokens, stack

    def act(self, op: FusedMatmul | AddedBias, y: Tensor, x: Tensor, residual: Tensor | None) -> Tensor | None:
        """Add the result of the op to y, in place; returns the op's gates [rows, 1], None without a gate."""
        if isinstance(op, AddedBias):
            change = self._change(op).to(y.dtype)
            y[:, op.column : op.column + change.shape[1]].add_(self.tokens.of_tokens(change))
            return None
        given = self._input(op, x, residual)
        gates = None if op.gate is None else self.gate(op.gate, given)
        own = y[:, op.column : op.column + op.steps[-1].fold * op.steps[-1].weight.shape[1]]
        self._multiply(op, own, given, self._scale(op, gates, y))
        return gates

    def of_rows(self, op: AddedBias) -> Tensor:
        """The bias that the op adds to each row, [rows, width] in float32."""
        return self._change(op).index_select(0, self.tokens.row_groups)

    def norm(self, own: NormWeights, x: Tensor, base: Norm) -> Tensor:
        """The norm of the program's tokens with their own weights; undefined for other tokens."""
        weight = self._weights(own.weight, base.weight).to(x.dtype)
        bias = None if own.bias is None and base.bias is None else self._weights(own.bias, base.bias).to(x.dtype)
        return self.tokens.norm(x, weight, bias, base)

    def gate(self, gate: Gate, x: Tensor) -> Tensor:
        """[rows, 1] in float32."""
        weight, bias = (at(one, self._stack) for one in (gate.weight, gate.bias))
        if gate.column is None:
            scores = linear.linear(_contiguous(x), weight[:, :, None], bias[:, None], self.tokens.runs)
            return self.tokens.row_mean(scores.float().sigmoid())
        scores = linear.linear(_contiguous(x), weight, bias, self.tokens.runs)
        return self.tokens.row_mean(scores.float().relu()).softmax(-1)[:, gate.column : gate.column + 1]

    def prefix(self, number: int, x: Tensor) -> Prefix:
        """The keys and values of each row, multiplied by its gate, in the dtype of x."""
        own = self.program.prefixes[number]
        keys, values = (
            at(one, self._stack).index_select(0, self.tokens.row_groups).to(x.dtype) for one in (own.keys, own.values)
        )
        if own.gate is not None:
            scale = self.gate(own.gate, x)[:, :, None, None].to(x.dtype)
            keys, values = keys * scale, values * scale
        return Prefix(keys, values)

    def _change(self, op: AddedBias) -> Tensor:
        bias = at(op.bias, self._stack)
        return bias if op.replaced is None else bias - op.replaced

    def _weights(self, own: Tensor | None, base: Tensor | None) -> Tensor:
        """[groups, width]."""
        if own is not None:
            return at(own, self._stack)
        assert base is not None, "what nobody has is not asked for"
        return base.expand(self.tokens.num_groups, -1)

    def _input(self, op: FusedMatmul, x: Tensor, residual: Tensor | None) -> Tensor:
        if op.reads == "x":
            return x
        assert residual is not None, "only sub-layers have sums to read"
        if isinstance(op.reads, Normed):
            own = self.program.norms.get(op.reads.index)
            both = x + residual
            return op.reads.base(both) if own is None else self.norm(own, both, op.reads.base)
        return x + residual

    def _scale(self, op: FusedMatmul, gates: Tensor | None, y: Tensor) -> Tensor | None:
        """The scale of each token, [tokens, 1]."""
        if gates is not None:
            return self.tokens.spread(gates.to(y.dtype) * op.gain)
        return None if op.gain == 1 else self._gain(op.gain, y.dtype)

    def _gain(self, gain: float, dtype: torch.dtype) -> Tensor:
        key = gain, dtype
        if key not in self._gains:
            self._gains[key] = torch.full((self.tokens.num_tokens, 1), gain, dtype=dtype, device=self._stack.device)
        return self._gains[key]

    @cached_property
    def _gains(self) -> dict[tuple[float, torch.dtype], Tensor]:
        return {}

    def _multiply(self, op: FusedMatmul, y: Tensor, x: Tensor, scale: Tensor | None) -> None:
        """y += steps(x) * scale: in one launch if a kernel computes all steps, else in one launch for each step."""
        runs, steps = self.tokens.runs, op.steps
        if _is_bottleneck(steps):
            maps = bottleneck.Maps(*(self._own(one) for step in steps for one in (step.weight, step.bias)))
            bottleneck.bottleneck(y, x, maps, steps[0].activation, runs, scale)
        elif _is_lora(steps):
            lora.lora(y, x, self._own(steps[0].weight), self._own(steps[1].weight), runs, scale)
        elif _is_compacter(steps):
            first, rule_down, rule_up, second = (self._own(step.weight) for step in steps)
            bias, ones = self._own(steps[1].bias), self._own(steps[2].bias)
            factors = compacter.Maps(first, rule_down, bias, rule_up, ones, second)
            compacter.compacter(y, x, factors, steps[1].activation, runs, scale)
        else:
            self._multiply_each(steps, y, x, scale)

    def _multiply_each(self, steps: Sequence[MatmulStep], y: Tensor, x: Tensor, scale: Tensor | None) -> None:
        for step in steps:
            blocks = _contiguous(x.reshape(-1, step.weight.shape[0]))
            bias = None if step.bias is None else self._own(step.bias)
            made = linear.linear(blocks, self._own(step.weight), bias, self.tokens.runs, step.fold)
            x = ACTIVATIONS[step.activation](made).view(len(y), -1)
        if scale is None:
            y.add_(x)
        else:
            y.addcmul_(x, scale)

    def _own(self, tensor: Tensor | None) -> Tensor:
        """The tensor of each group, [groups, ...]; one that all adapters share is expanded without a copy."""
        assert tensor is not None, "this kernel has it"
        found = at(tensor, self._stack)
        return found if tensor.is_meta else found.expand(self.tokens.num_groups, *found.shape)


def _is_bottleneck(steps: Sequence[MatmulStep]) -> bool:
    return _are(steps, folds=(1, 1), biased=(True, True)) and steps[0].weight.shape[1] <= MAX_SIZE


def _is_lora(steps: Sequence[MatmulStep]) -> bool:
    plain = _are(steps, folds=(1, 1), biased=(False, False)) and steps[0].activation == "none"
    return plain and steps[0].weight.shape[1] <= MAX_SIZE


def _is_compacter(steps: Sequence[MatmulStep]) -> bool:
    folds = (steps[0].fold, 1, 1, steps[-1].fold)
    if steps[0].fold == 1 or not _are(steps, folds=folds, biased=(False, True, True, False)):
        return False
    return max(steps[0].weight.shape[1], steps[1].weight.shape[1], steps[3].weight.shape[0]) <= MAX_SIZE


def _are(steps: Sequence[MatmulStep], *, folds: Sequence[int], biased: Sequence[bool]) -> bool:
    return [(step.fold, step.bias is not None) for step in steps] == list(zip(folds, biased, strict=True))


def _contiguous(x: Tensor) -> Tensor:
    return x if x.shape[-1] == 1 or x.stride(-1) == 1 else x.contiguous()


class TritonOps(GroupedOps):
    """`GroupedOps` of several programs. Each program reads the tokens of its slice, which may be all tokens, and
    changes only its own. `groups` are the groups of each program in order, which may record gates."""

    def __init__(
        self, programs: Sequence[tuple[ProgramOps, slice]], groups: Sequence[Sequence[AdapterGroup]] | None = None
    ) -> None:
        self._programs = list(programs)
        self._groups = groups or [()] * len(programs)

    def act(self, site: str, number: int, y: Tensor, x: Tensor, residual: Tensor | None = None) -> Tensor:
        for (one, tokens), groups in zip(self._programs, self._groups, strict=True):
            for op in one.program.placed.get((site, number), ()):
                gates = one.act(op, y[tokens], x[tokens], None if residual is None else residual[tokens])
                if gates is not None and isinstance(op, FusedMatmul) and op.gate is not None:
                    _record(op.gate, gates, groups)
        return y

    def norm(self, index: int, x: Tensor, base: Norm, residual: Tensor | None = None) -> Tensor:
        x = x if residual is None else x + residual
        y = base(x)
        for one, tokens in self._programs:
            own = one.program.norms.get(index)
            if own is not None:
                y[tokens] = torch.where(one.tokens.inside, one.norm(own, x[tokens], base), y[tokens])
        return y

    def prefix_gates(self, number: int, x: Tensor) -> Tensor | None:
        found = []
        for (one, tokens), groups in zip(self._programs, self._groups, strict=True):
            gate = one.program.prefixes[number].gate
            if gate is None:
                found.append(x.new_ones(len(one.tokens.row_groups), 1, dtype=torch.float32))
            else:
                found.append(one.gate(gate, x[tokens]))
                _record(gate, found[-1], groups)
        return torch.cat(found)


def _record(gate: Gate, gates: Tensor, groups: Sequence[AdapterGroup]) -> None:
    first = 0
    for group in groups:
        group.record(gate.label, gate.number, gates[first : first + group.rows, 0])
        first += group.rows


class TritonBackend:
    """See `Backend`."""

    name = "triton"

    def __init__(self, device: torch.device) -> None:
        self._device = device

    def group(self, groups: Sequence[AdapterGroup], lengths: Sequence[int]) -> TritonOps:
        starts, row = [0, *accumulate(lengths)], 0
        programs, members = [], []
        for program, run in groupby(groups, key=lambda group: group.program):
            own = list(run)
            last = row + sum(group.rows for group in own)
            if program is not None:
                tokens = slice(starts[row], starts[last])
                programs.append(
                    (ProgramOps(program, self._program_tokens(own, lengths[row:last]), _stack(own)), tokens)
                )
                members.append(own)
            row = last
        return TritonOps(programs, members)

    def _program_tokens(self, groups: Sequence[AdapterGroup], lengths: Sequence[int]) -> ProgramTokens:
        row_starts = [0, *accumulate(lengths)]
        starts = [row_starts[row] for row in accumulate((group.rows for group in groups), initial=0)]
        numbers = [number for number, group in enumerate(groups) for _ in range(group.rows)]
        longest = max(end - start for start, end in pairwise(starts))
        tables = self._table(starts), self._table(row_starts), self._table(numbers)
        return ProgramTokens(*tables, row_starts[-1], longest)

    def _table(self, numbers: Sequence[int]) -> Tensor:
        return torch.tensor(numbers, dtype=torch.int32, device=self._device)


def _stack(groups: Sequence[AdapterGroup]) -> Tensor:
    flats = [group.flat for group in groups if group.flat is not None]
    return flats[0][None] if len(flats) == 1 else torch.stack(flats)
