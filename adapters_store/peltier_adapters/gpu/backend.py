"""Ops by Triton kernels on a GPU: one launch for each site runs the ops of all rows, whatever their adapters.

Kernels find weights by addresses. A program becomes a table on the device once (`program_table.py`), an adapter's
weights are made ready for the kernels when it is loaded (`ready`), and a batch brings three numbers for each row: where
its tokens begin, and the addresses of its adapter's weights and program.
"""

import threading
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import replace
from itertools import accumulate
from weakref import WeakKeyDictionary

import torch
from peltier_backbone.linear.norm import Norm
from torch import Tensor

from peltier_adapters.gpu.kernels.attention import Attention
from peltier_adapters.gpu.kernels.chain import chain
from peltier_adapters.gpu.kernels.norm import norm
from peltier_adapters.gpu.kernels.rows import Rows
from peltier_adapters.gpu.kernels.steps import step
from peltier_adapters.gpu.program_table import Action, ProgramTable, is_narrow, merge_launches
from peltier_adapters.ops.backend import AdapterGroup, Backend, GroupedOps, Prepared
from peltier_adapters.ops.op import SITES, AddedBias, FusedMatmul, Place, PlacedOp, PrefixKeys, Program, at


class TritonOps(GroupedOps):
    """`GroupedOps` of `rows`, whose programs are in `tables`. Only `groups`, which cover the rows, record gates."""

    def __init__(self, rows: Rows, tables: Mapping[Program, ProgramTable], groups: Sequence[AdapterGroup] = ()) -> None:
        self.rows, self._tables = rows, tables
        depths = {program.depth for program in tables}
        assert len(depths) < 2, f"programs of one batch have depths {sorted(depths)}, and so other places"
        self._depth = max(depths, default=0)
        self._groups = groups if any(one.gates is not None for one in groups) else ()
        most = max((one.max_ops for one in tables.values()), default=1)
        self._gates = rows.starts.new_empty(most, len(rows), dtype=torch.float32)

    def act(self, site: str, number: int, y: Tensor, x: Tensor, residual: Tensor | None = None) -> Tensor:
        tables = [one for one in self._tables.values() if (site, number) in one.actions]
        if not tables:
            return y
        acting = [one.actions[site, number] for one in tables]
        place = SITES.index(site) * self._depth + number
        out = torch.empty_like(y) if x is y else y
        wide = _wide(acting)
        if x is y or sum(map(len, acting)) > sum(map(len, wide)):
            launch = merge_launches([one.launches[site, number] for one in tables])
            launch = launch._replace(lanes=1) if x is y else launch
            chain(out, y, x, residual, self._gates, self.rows, place, launch)
        for op_number, ops in enumerate(wide):
            if ops:
                self._run_steps(out, (x, residual), (place, op_number), ops)
        if self._groups:
            self._record((site, number))
        return out

    def _run_steps(
        self, out: Tensor, read: tuple[Tensor, Tensor | None], at: tuple[int, int], ops: Sequence[FusedMatmul]
    ) -> None:
        widths = [one.fold * one.weight.shape[1] for op in ops for one in op.steps[:-1]]
        given, made = (out.new_empty(len(out), max(widths, default=1)) for _ in range(2))
        for index in range(max(len(op.steps) for op in ops)):
            outer = max(op.steps[index].weight.shape[1] for op in ops if index < len(op.steps))
            step(out, *read, (given, made), self._gates, self.rows, *at, index, outer)
            given, made = made, given

    def norm(self, index: int, x: Tensor, base: Norm, residual: Tensor | None = None) -> Tensor:
        return norm(x, residual, self.rows, index, base)

    def attention(self, number: int) -> Attention:
        """Attention `number` with the prefixes of the rows. Call it after `act` at the projection of its input, which
        computes their gates."""
        return Attention(self.rows, number, self._gates)

    def _record(self, place: Place) -> None:
        first = 0
        for group in self._groups:
            rows = slice(first, first := first + group.rows)
            actions = self._tables[group.program].actions.get(place, ()) if group.program else ()
            for number, action in enumerate(actions):
                if isinstance(action, FusedMatmul | PrefixKeys) and action.gate is not None:
                    group.record(action.gate.label, action.gate.number, self._gates[number, rows].clone())


def _wide(acting: Sequence[Sequence[Action]]) -> list[list[FusedMatmul]]:
    """The ops that run step by step, by their number at the place."""
    found: list[list[FusedMatmul]] = [[] for _ in range(max(map(len, acting)))]
    for actions in acting:
        for own, action in zip(found, actions, strict=False):
            if isinstance(action, FusedMatmul) and not is_narrow(action.steps):
                own.append(action)
    return found


class TritonBackend(Backend):
    """See `Backend`. Weights are kept in the `dtype` of the activations that they multiply."""

    name = "triton"

    def __init__(self, device: torch.device, dtype: torch.dtype) -> None:
        self._device, self._dtype = device, dtype
        self._tables: WeakKeyDictionary[Program, ProgramTable] = WeakKeyDictionary()
        self._lock = threading.Lock()

    @property
    def element_bytes(self) -> int:
        return self._dtype.itemsize

    def group(self, groups: Sequence[AdapterGroup], lengths: Sequence[int]) -> TritonOps:
        starts = list(accumulate(lengths, initial=0))
        bases = [0 if one.flat is None else one.flat.data_ptr() for one in groups for _ in range(one.rows)]
        programs = [self.address(one.program) for one in groups for _ in range(one.rows)]
        words = torch.tensor([*starts, *bases, *programs], pin_memory=self._device.type == "cuda")
        sizes = [len(starts), len(bases), len(programs)]
        own = torch.split(words.to(self._device, non_blocking=True), sizes)
        return TritonOps(Rows(own[0], own[1], own[2], max(lengths)), self.tables(one.program for one in groups), groups)

    def tables(self, programs: Iterable[Program | None]) -> Mapping[Program, ProgramTable]:
        """The table of each program."""
        return {one: self._table(one) for one in programs if one is not None}

    def address(self, program: Program | None) -> int:
        """The address of a program's table; 0 for none."""
        return 0 if program is None else self._table(program).address

    def _table(self, program: Program) -> ProgramTable:
        with self._lock:
            found = self._tables.get(program)
            if found is None:
                found = self._tables[program] = ProgramTable(program, self._device, self._dtype)
            return found

    def prepare(self, program: Program, length: int) -> Prepared:
        """A copy of the weights in the backend's dtype. A bias that replaces one of the backbone becomes the difference
        to it before it is rounded. This makes the program's table, so that no batch has to."""
        replaced = torch.zeros(length, device=self._device)
        settled = _settle(program, replaced)
        self._table(settled)
        if settled is program:
            return Prepared(program, lambda flat: flat.to(self._dtype, copy=True))
        return Prepared(settled, lambda flat: (flat - replaced).to(self._dtype))


def _settle(program: Program, replaced: Tensor) -> Program:
    """The program that adds biases as they are, once `replaced` [length] has been taken from the weights; it writes
    that. It is `program` if that replaces no bias."""
    settled, placed = copy(program), dict[Place, list[PlacedOp]]()
    for place, ops in program.placed.items():
        placed[place] = [_difference(op, replaced) for op in ops]
    settled.placed = placed
    return program if placed == program.placed else settled


def _difference(op: PlacedOp, replaced: Tensor) -> PlacedOp:
    if not isinstance(op, AddedBias) or op.replaced is None:
        return op
    at(op.bias, replaced).copy_(op.replaced)
    return replace(op, replaced=None)
