"""Programs as the words that the kernels read (`kernels/rows.py`)."""

import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, cycle, pairwise

import torch
from peltier_backbone.native.program import ACTIVATIONS, READS
from torch import Tensor

from peltier_adapters.gpu.kernels.chain import Launch
from peltier_adapters.gpu.kernels.rows import PLACES, SCALED
from peltier_adapters.gpu.kernels.tile import MIDDLE
from peltier_adapters.ops.op import (
    SITES,
    AddedBias,
    FusedMatmul,
    Gate,
    MatmulStep,
    Normed,
    NormWeights,
    Place,
    PrefixKeys,
    Program,
    Scaled,
)

_ABSENT = (0, -1)
_NO_STEP = (*_ABSENT, 0, *_ABSENT, 1, 0, 0, 0)
_NO_GATE = (0, 0, *_ABSENT, *_ABSENT)
_NO_NORM = (*_ABSENT, *_ABSENT, 0, 0)
_NO_PREFIX = (*_ABSENT, *_ABSENT, 0, 0, 0, -1)
# The projections of the input that also an attention's prefix is gated by: of self-attention, and of cross-attention.
_QUERIES = ("query_key_value", "query")

_SCALED = SCALED.value
# Elements that a GPU reads at a time.
_ALIGNED = 8

Action = FusedMatmul | AddedBias | Scaled | PrefixKeys


class ProgramTable:
    """The words of a program, whose adapters have weights of `dtype`, at an `address` on the device. `actions` has the
    ops of each place in order, and `launches` how they are computed. The gate of a prefix is an op of the place that
    has its input, and always the first."""

    def __init__(self, program: Program, device: torch.device, dtype: torch.dtype) -> None:
        self._device, self._dtype, self._norms = device, dtype, program.norms
        self._identity = torch.eye(MIDDLE, dtype=dtype, device=device)
        self._kept = [self._identity]
        self.depth, self.actions = program.depth, _actions(program)
        self.launches = {place: _launch(actions) for place, actions in self.actions.items()}
        self.max_ops = max(map(len, self.actions.values()), default=1)
        self.words = torch.tensor(self._write(program), dtype=torch.int64).to(device)
        self.address = self.words.data_ptr()

    def _write(self, program: Program) -> list[int]:
        depth, places, ops = program.depth, [0], list[int]()
        for place in ((site, number) for site in SITES for number in range(depth)):
            own = self.actions.get(place, ())
            ops += _join(self._op(action) for action in own)
            places.append(places[-1] + len(own))
        norms = _join(self._norm(program.norms.get(index)) for index in range(2 * depth + 2))
        # The kernels find the prefix of an attention by its number.
        prefixes = _join(
            self._prefix(program.prefixes.get(number)) for number in range(depth if program.prefixes else 0)
        )
        first_op = PLACES.value + len(places)
        first_norm = first_op + len(ops)
        first_prefix = first_norm + len(norms) if prefixes else 0
        return [first_op, first_norm, first_prefix, *places, *ops, *norms, *prefixes]

    def _op(self, action: Action) -> tuple[int, ...]:
        """`NUM_OP_WORDS` words."""
        match action:
            case PrefixKeys(gate=Gate() as gate):
                return (0, len(gate.weight), 0, 0, _bits(1.0), *self._gate(gate), *_NO_NORM, 0, 0, *_NO_STEP * 4)
            case AddedBias(bias=bias, column=column):
                if action.replaced is not None:
                    raise ValueError("the table has differences to replaced biases only: `TritonBackend.prepare`")
                last = *_ABSENT, 0, *self._vector(bias), 1, 0, len(bias), 0
                return (column, 0, len(bias), 0, _bits(1.0), *_NO_GATE, *_NO_NORM, 2, 0, *_NO_STEP * 3, *last)
            case Scaled(factor=factor, column=column):
                last = *_ABSENT, 0, *self._vector(factor), 1, 0, len(factor), 0
                return (column, 0, len(factor), 0, _bits(1.0), *_NO_GATE, *_NO_NORM, 0, _SCALED, *_NO_STEP * 3, *last)
            case FusedMatmul():
                return self._matmul(action)
            case _:
                raise AssertionError("a prefix without a gate acts at no place")

    def _matmul(self, action: FusedMatmul) -> tuple[int, ...]:
        steps, first, last = action.steps, action.steps[0], action.steps[-1]
        wide = not is_narrow(steps)
        own = [self._step(step) for step in (steps if wide else self._four(steps))]
        own += [_NO_STEP] * (4 - len(own))
        shape = action.column, first.fold * first.weight.shape[0], last.fold * last.weight.shape[1]
        reads = READS["norm" if isinstance(action.reads, Normed) else action.reads]
        gate = _NO_GATE if action.gate is None else self._gate(action.gate)
        norm = self._read_norm(action.reads) if isinstance(action.reads, Normed) else _NO_NORM
        return (*shape, reads, _bits(action.gain), *gate, *norm, len(steps), int(wide), *_join(own))

    def _four(self, steps: Sequence[MatmulStep]) -> Sequence[MatmulStep]:
        """Narrow steps in the form of four, with the identity in the place of what two steps do not have."""
        if len(steps) == 4:
            return steps
        first, last = steps
        size = first.weight.shape[1]
        same = self._identity[:size, :size]
        return replace(first, bias=None, activation="none"), replace(first, weight=same), MatmulStep(same), last

    def _step(self, step: MatmulStep) -> tuple[int, ...]:
        inner, outer = step.weight.shape
        number = ACTIVATIONS[step.activation]
        return (
            *self._vector(step.weight), step.weight.stride(0), *self._vector(step.bias), step.fold, inner, outer, number
        )  # fmt: skip

    def _gate(self, gate: Gate) -> tuple[int, ...]:
        outputs = 1 if gate.column is None else 2
        return outputs, gate.column or 0, *self._vector(gate.weight), *self._vector(gate.bias)

    def _read_norm(self, normed: Normed) -> tuple[int, ...]:
        """With the adapter's own weights if it has some, else with the backbone's."""
        own, base = self._norms.get(normed.index), normed.base
        weight = base.weight if own is None or own.weight is None else own.weight
        bias = base.bias if own is None or own.bias is None else own.bias
        return (*self._vector(weight), *self._vector(bias), _bits(base.eps), int(base.centered))

    def _norm(self, own: NormWeights | None) -> tuple[int, ...]:
        return _NO_NORM[:4] if own is None else (*self._vector(own.weight), *self._vector(own.bias))

    def _prefix(self, own: PrefixKeys | None) -> tuple[int, ...]:
        if own is None:
            return _NO_PREFIX
        assert own.keys.stride() == own.values.stride(), "a key and its value are found at the same distance"
        head, key, _ = own.keys.stride()
        gate = -1 if own.gate is None else 0
        return (*self._vector(own.keys), *self._vector(own.values), own.keys.shape[1], head, key, gate)

    def _vector(self, tensor: Tensor | None) -> tuple[int, int]:
        """A tensor of the template is part of each adapter's weights; all adapters share any other."""
        if tensor is None:
            return _ABSENT
        if tensor.is_meta:
            return 0, int(tensor.storage_offset())
        shared = tensor.to(self._device, self._dtype)
        self._kept.append(shared)
        return shared.data_ptr(), -1


def is_narrow(steps: Sequence[MatmulStep]) -> bool:
    """Whether `kernels/chain.py` computes the steps in one launch."""
    shapes = [tuple(step.weight.shape) for step in steps]
    plain = all(step.activation == "none" for step in steps[2 if len(steps) == 4 else 1 :])
    if len(steps) == 2:
        return plain and [step.fold for step in steps] == [1, 1] and shapes[0][1] <= MIDDLE
    if len(steps) != 4 or steps[0].bias is not None or steps[0].activation != "none":
        return False
    folds = [step.fold for step in steps]
    return plain and folds == [folds[0], 1, 1, folds[0]] and max(shapes[0][1], shapes[1][1], shapes[3][0]) <= MIDDLE


def _actions(program: Program) -> Mapping[Place, Sequence[Action]]:
    found: dict[Place, list[Action]] = {place: list(ops) for place, ops in program.placed.items()}
    for number, prefix in program.prefixes.items():
        for site in _QUERIES if prefix.gate is not None else ():
            found.setdefault((site, number), []).insert(0, prefix)
    return found


def _launch(actions: Sequence[Action]) -> Launch:
    """How the ops of a place are computed; 0 lanes if they change the same columns."""
    ranges = sorted(_columns(one) for one in actions)
    apart = all(end <= start for (_, end), (start, _) in pairwise(ranges))
    steps = [step for one in actions if isinstance(one, FusedMatmul) for step in (one.steps[0], one.steps[-1])]
    bounds = [*chain.from_iterable(ranges), *(one.weight.shape[number] for one, number in zip(steps, cycle((0, 1))))]
    weights = [number for one in steps for number in (one.weight.storage_offset(), one.weight.stride(0))]
    inner = [one.weight.shape[1 - number] for one, number in zip(steps, cycle((0, 1)))]
    unit = _ALIGNED if all(number % _ALIGNED == 0 for number in bounds) else 1
    grain = unit if all(number % _ALIGNED == 0 for number in (*weights, *inner)) else 1
    return Launch(len(actions) if apart else 0, unit, grain)


def _columns(action: Action) -> tuple[int, int]:
    """The columns that an op changes, from the first on and below the last."""
    match action:
        case FusedMatmul(steps=steps, column=column):
            return column, column + steps[-1].fold * steps[-1].weight.shape[1]
        case AddedBias(bias=bias, column=column):
            return column, column + len(bias)
        case Scaled(factor=factor, column=column):
            return column, column + len(factor)
        case _:
            return 0, 0  # the gate of a prefix changes nothing


def merge_launches(launches: Sequence[Launch]) -> Launch:
    """One launch of several programs at a place."""
    lanes, units, grains = zip(*launches, strict=True)
    return Launch(max(lanes) if all(lanes) else 1, min(units), min(grains))


def _bits(value: float) -> int:
    """The bits of a float32."""
    return int(struct.unpack("<I", struct.pack("<f", value))[0])


def _join(pieces: Iterable[Sequence[int]]) -> list[int]:
    return [word for piece in pieces for word in piece]
