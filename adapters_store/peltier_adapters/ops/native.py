"""Ops by the native kernels of the CPU: one call runs all layers, or the ops of one other site.

`compile_program` translates a program for the kernels once. A batch is a table of each row's program and of the address
of its weights, which the kernels read without a copy.
"""

from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from itertools import product
from weakref import WeakKeyDictionary

import torch
from peltier_backbone.linear.norm import Norm
from peltier_backbone.native import program as layout
from peltier_backbone.native.library import Library
from peltier_backbone.native.program import READS, NativeProgram, place_op, place_prefix, step, vector
from peltier_backbone.native.program import PlacedOp as NativeOp
from peltier_backbone.native.rows import STACK_SITES, PlacedOps, Table, TableGroup
from torch import Tensor

from peltier_adapters.ops.backend import AdapterGroup, Backend, GroupedOps
from peltier_adapters.ops.op import (
    SITES,
    AddedBias,
    FusedMatmul,
    Gate,
    MatmulStep,
    Normed,
    Place,
    PlacedOp,
    Program,
    Scaled,
)


def compile_program(program: Program) -> NativeProgram:
    """The program in the memory layout of the kernels."""
    # Everything but the program itself, which would otherwise never leave the cache of which it is the key.
    kept: list[object] = [*program.placed.values(), *program.prefixes.values(), *program.norms.values()]
    ops = [
        _compile_op(program, op, _place(site, number, program.depth), kept)
        for (site, number), own in program.placed.items()
        for op in own
    ]
    for number, prefix in program.prefixes.items():
        gate = None if prefix.gate is None else _compile_gate(prefix.gate)
        ops.append(place_prefix(_place("prefix", number, program.depth), prefix.keys, prefix.values, gate))
    norms = {
        index: layout.NativeNormWeights(vector(own.weight), vector(own.bias)) for index, own in program.norms.items()
    }
    return NativeProgram(ops, len(SITES) * program.depth, norms, _num_norms(program.depth), kept)


def _place(site: str, number: int, depth: int) -> int:
    return SITES.index(site) * depth + number


def _num_norms(depth: int) -> int:
    """An upper bound of the number of norms: one for each attention and each feed-forward layer, and two more."""
    return 2 * depth + 2


def _compile_op(program: Program, op: PlacedOp, place: int, kept: list[object]) -> NativeOp:
    if isinstance(op, Scaled):
        return place_op(place, column=op.column, width=len(op.factor), factor=vector(op.factor))
    if isinstance(op, AddedBias):
        added, replaced = vector(op.bias), vector(op.replaced)
        return place_op(place, column=op.column, width=len(op.bias), added=added, replaced=replaced)
    own = {} if op.gate is None else {"gate": _compile_gate(op.gate)}
    reads = _compile_norm(program, op.reads, kept) if isinstance(op.reads, Normed) else {"reads": READS[op.reads]}
    return place_op(place, list(map(_compile_step, op.steps)), column=op.column, gain=op.gain, **own, **reads)


def _compile_step(own: MatmulStep) -> layout.Step:
    return step(own.weight, own.bias, fold=own.fold, activation=own.activation)


def _compile_gate(gate: Gate) -> layout.NativeGate:
    outputs = 1 if gate.column is None else 2
    return layout.NativeGate(vector(gate.weight), vector(gate.bias), outputs, gate.column or 0)


def _compile_norm(program: Program, normed: Normed, kept: list[object]) -> dict[str, object]:
    """The norm's fields with the adapter's own weights, or with the backbone's in float32."""
    own, base = program.norms.get(normed.index), normed.base
    weight = base.weight.float() if own is None or own.weight is None else own.weight
    bias = own.bias if own is not None and own.bias is not None else base.bias
    bias = bias if bias is None else bias.float()
    kept += [one for one in (weight, bias) if one is not None]
    return {
        "reads": READS["norm"], "norm_weight": vector(weight), "norm_bias": vector(bias), "eps": base.eps,
        "centered": base.centered,
    }  # fmt: skip


class NativeOps(GroupedOps):
    """`GroupedOps` that pass one table of all groups to the native kernels. `records`: a group records its gates."""

    def __init__(
        self, library: Library, groups: Sequence[AdapterGroup], programs: Sequence[NativeProgram | None],
        lengths: Sequence[int],
    ) -> None:  # fmt: skip
        self._library, self._groups = library, groups
        own = [one.program for one in groups if one.program is not None]
        self._acting = frozenset(place for program in set(own) for place in program.placed)
        self._norms = frozenset(index for program in set(own) for index in program.norms)
        depths = {program.depth for program in own}
        assert len(depths) < 2, f"programs of one batch have depths {sorted(depths)}, and so other places"
        self._depth = max(depths, default=0)
        pairs = zip(groups, programs, strict=True)
        self._table = Table(lengths, [TableGroup(one.rows, program, _address(one)) for one, program in pairs])
        self.records = any(one.gates is not None for one in groups)
        # One row for each op of the place that has the most ops. Recorded gates need memory at each place.
        kept = len(SITES) * self._depth if self.records else 1
        self._gates = torch.empty(kept, self._table.max_ops, self._table.num_rows)

    def act(self, site: str, number: int, y: Tensor, x: Tensor, residual: Tensor | None = None) -> Tensor:
        if (site, number) in self._acting:
            place = _place(site, number, self._depth)
            self._library.adapt(y, x, residual, self._table, place, self._gates_at(place))
            if self.records:
                self.record([(site, number)])
        return y

    def norm(self, index: int, x: Tensor, base: Norm, residual: Tensor | None = None) -> Tensor:
        table = self._table if index in self._norms else None
        return self._library.norm(x, residual, base.weight, base.bias, base, table, index)

    @cached_property
    def placed(self) -> PlacedOps:
        """All ops in the layers, for one call; `record` follows it where gates are recorded."""
        places = [_place(site, 0, self._depth) for site in STACK_SITES]
        prefixed = any(one.program is not None and one.program.prefixes for one in self._groups)
        gates = self._gates if self.records else self._gates[0]
        return PlacedOps(self._table, places, gates, prefixed=prefixed)

    def _gates_at(self, place: int) -> Tensor:
        """The memory of the gates of a place, [ops, rows]."""
        return self._gates[place if self.records else 0]

    def record(self, places: Iterable[Place]) -> None:
        """Keep the gates that the kernels have computed at `places`, for the groups that record them."""
        for (site, number), (group, rows) in product(places, self._rows()):
            computed = self._gates_at(_place(site, number, self._depth))
            for row, gate in enumerate(_gates_of(group.program, site, number)):
                if gate is not None:
                    group.record(gate.label, gate.number, computed[row, rows].clone())

    def _rows(self) -> Iterator[tuple[AdapterGroup, slice]]:
        first = 0
        for group in self._groups:
            yield group, slice(first, first + group.rows)
            first += group.rows


def _gates_of(program: Program | None, site: str, number: int) -> list[Gate | None]:
    """The gate of each op of a place."""
    if program is None:
        return []
    if site == "prefix":
        return [program.prefixes[number].gate] if number in program.prefixes else []
    ops = program.placed.get((site, number), ())
    return [op.gate if isinstance(op, FusedMatmul) else None for op in ops]


def _address(group: AdapterGroup) -> int:
    return 0 if group.flat is None else group.flat.data_ptr()


class NativeBackend(Backend):
    """See `Backend`."""

    def __init__(self, library: Library) -> None:
        self.library, self.name = library, f"native-{library.name}"
        self._programs: WeakKeyDictionary[Program, NativeProgram] = WeakKeyDictionary()

    def group(self, groups: Sequence[AdapterGroup], lengths: Sequence[int]) -> NativeOps:
        return NativeOps(self.library, groups, [self._compiled(group.program) for group in groups], lengths)

    def _compiled(self, program: Program | None) -> NativeProgram | None:
        if program is None:
            return None
        found = self._programs.get(program)
        if found is None:
            found = self._programs[program] = compile_program(program)
        return found
