"""Every op by each backend against the formula, row by row in float64; and how often a backend is called."""

import gc
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.ops.backend import AdapterGroup, Backend
from peltier_adapters.ops.native import NativeBackend, compile_program
from peltier_adapters.ops.op import (
    AddedBias,
    FusedMatmul,
    Gate,
    MatmulStep,
    Normed,
    NormWeights,
    Op,
    PrefixKeys,
    Program,
    Scaled,
)
from peltier_adapters.ops.torch import ACTIVATIONS, TORCH
from peltier_adapters.residency.bank import Banks
from peltier_backbone.backbone import Backbone
from peltier_backbone.linear.norm import LayerNorm
from peltier_backbone.native.choice import load_library
from peltier_backbone.native.library import Library
from torch import Tensor
from torch.nn import functional as F

from tests.support.levels import LEVELS, forced_level, reloaded

HIDDEN = 12
# Rows of each group; a group without an adapter; groups of one program and of another.
ROWS, LENGTHS = (2, 1, 1, 3), (3, 1, 4, 2, 5, 1, 2)
KINDS = (0, None, 1, 0)
BASE = LayerNorm(torch.rand(HIDDEN) + 0.5, torch.rand(HIDDEN), 1e-5)


@pytest.fixture(params=["torch", "native"])
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    """Each of the CPU; Triton's is compared in `kernels/`."""
    library = load_library()
    assert library is not None
    with torch.inference_mode():
        yield TORCH if request.param == "torch" else NativeBackend(library)


class Template:
    """Cuts tensors of all adapters out of one that has no memory."""

    def __init__(self) -> None:
        self._flat, self._end = torch.empty(4096, device="meta"), 0

    def __call__(self, *shape: int) -> Tensor:
        start, self._end = self._end, self._end + torch.Size(shape).numel()
        return self._flat[start : self._end].view(shape)


def _ops(kind: int, cut: Template) -> list[Op]:
    """Everything that acts at "ffn" of layer 1, and a norm."""
    gate = Gate("x", 1, cut(HIDDEN), cut())
    size, reads = (5, "sum") if kind == 0 else (3, Normed(2, BASE))
    steps = (
        MatmulStep(cut(HIDDEN, size), cut(size), activation="gelu_new"),
        MatmulStep(cut(size, HIDDEN), cut(HIDDEN)),
    )
    fused = FusedMatmul("ffn", 1, steps, reads=reads, gate=gate)  # type: ignore[arg-type]
    if kind == 0:
        return [fused, NormWeights(2, cut(HIDDEN), None)]
    return [fused, AddedBias("ffn", 1, cut(4), torch.ones(4), column=3), NormWeights(2, cut(HIDDEN), cut(HIDDEN))]


@dataclass(frozen=True)
class Batch:
    """Groups of two programs, each with weights of its own."""

    programs: tuple[Program, Program]
    groups: tuple[AdapterGroup, ...]

    @classmethod
    def draw(cls) -> "Batch":
        programs = tuple(Program(_ops(kind, Template()), 2) for kind in range(2))
        generator = torch.Generator().manual_seed(0)
        groups = [
            AdapterGroup(rows)
            if kind is None
            else AdapterGroup(rows, programs[kind], torch.randn(4096, generator=generator) / 3, {})
            for rows, kind in zip(ROWS, KINDS, strict=True)
        ]
        return cls((programs[0], programs[1]), tuple(groups))

    def rows(self) -> Iterator[tuple[AdapterGroup, slice]]:
        """Each row's group and tokens."""
        owners = [group for group in self.groups for _ in range(group.rows)]
        start = 0
        for group, length in zip(owners, LENGTHS, strict=True):
            yield group, slice(start, start + length)
            start += length


def _draw(seed: int) -> Tensor:
    return torch.randn(sum(LENGTHS), HIDDEN, generator=torch.Generator().manual_seed(seed))


def _plain_norm(group: AdapterGroup, x: Tensor) -> Tensor:
    own = group.program.norms.get(2) if group.program else None
    weight = BASE.weight.double() if own is None else _own(own.weight, group)
    bias = BASE.bias.double() if own is None or own.bias is None else _own(own.bias, group)
    return F.layer_norm(x, (HIDDEN,), weight, bias, 1e-5)


def _own(tensor: Tensor | None, group: AdapterGroup) -> Tensor:
    assert tensor is not None
    assert group.flat is not None
    if not tensor.is_meta:
        return tensor.double()
    start = tensor.storage_offset()
    return group.flat[start : start + tensor.numel()].view(tensor.shape).double()


def _plain(ops: Sequence[Op], group: AdapterGroup, y: Tensor, residual: Tensor) -> tuple[Tensor, float]:
    """One row with what its ops add, and its gate."""
    changed, gate = y.clone(), 0.0
    for op in ops:
        if isinstance(op, AddedBias):
            changed[:, op.column : op.column + 4] += _own(op.bias, group) - 1
        elif isinstance(op, FusedMatmul):
            assert op.gate is not None
            x = y + residual if op.reads == "sum" else _plain_norm(group, y + residual)
            gate = float((x @ _own(op.gate.weight, group) + _own(op.gate.bias, group)).sigmoid().mean())
            for step in op.steps:
                x = ACTIVATIONS[step.activation](x @ _own(step.weight, group) + _own(step.bias, group))
            changed += gate * x
    return changed, gate


def test_each_row_gets_its_own_adapters_ops(backend: Backend):
    """Gated steps of the sum and of its norm, a bias in the place of another; and the gates are recorded."""
    batch, y, residual = Batch.draw(), _draw(1), _draw(2)
    expected, gates = y.double(), []
    for group, tokens in batch.rows():
        if group.program:
            ops = group.program.placed["ffn", 1]
            expected[tokens], gate = _plain(ops, group, y[tokens].double(), residual[tokens].double())
            gates.append(gate)
    found = backend.group(batch.groups, LENGTHS).act("ffn", 1, y, y, residual)
    torch.testing.assert_close(found.double(), expected, atol=1e-4, rtol=1e-4)
    recorded = torch.cat([group.gates["x"][1] for group in batch.groups if group.gates])
    torch.testing.assert_close(recorded.double(), torch.tensor(gates, dtype=torch.float64), atol=1e-5, rtol=0)


def test_each_row_has_its_own_adapters_norm(backend: Backend):
    """Weight, weight and bias, or the backbone's own."""
    batch, x, residual = Batch.draw(), _draw(1), _draw(2)
    expected = torch.cat([_plain_norm(group, (x + residual)[tokens].double()) for group, tokens in batch.rows()])
    found = backend.group(batch.groups, LENGTHS).norm(2, x, BASE, residual)
    torch.testing.assert_close(found.double(), expected, atol=1e-5, rtol=1e-5)


def test_nothing_happens_where_no_op_is(backend: Backend):
    """At another layer, and at another site."""
    batch, y = Batch.draw(), _draw(1)
    ops = backend.group(batch.groups, LENGTHS)
    for site, number in (("ffn", 0), ("attention", 1)):
        assert torch.equal(ops.act(site, number, y.clone(), y, y), y)


@pytest.mark.parametrize("level", LEVELS)
def test_all_layers_are_one_native_call(level, bert, make_artifact, monkeypatch):
    """For any number of adapters and presets, at each level; the heads are another one."""
    with forced_level(level):
        assert _native_calls(reloaded(bert), make_artifact, monkeypatch) == ["run_stack", "adapt"]


def _native_calls(bert: Backbone, make_artifact: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The calls of a batch with adapters of many presets."""
    banks, presets = Banks(bert), ("compacter", "houlsby", "lowrank", "adamix", "phm", "pfeiffer")
    files = [make_artifact(bert, preset, seed=seed) for preset in presets for seed in range(2)]
    residents = [banks.add(read_artifact(data, bert)) for data in files]
    rows = [Row(bert.tokenizer.encode("a good film"), resident) for resident in residents]
    calls: list[str] = []
    for name in ("run_stack", "adapt"):
        monkeypatch.setattr(Library, name, _counted(getattr(Library, name), calls))
    forward(bert, rows)
    return calls


def _counted(kernel: Callable[..., Any], calls: list[str]) -> Callable[..., Any]:
    def counted(*given: Any, **options: Any) -> Any:
        calls.append(kernel.__name__)
        return kernel(*given, **options)

    return counted


def test_programs_of_one_batch_have_one_depth(backend: Backend):
    """Places are numbered by it, so a batch of two depths would read the ops of other places."""
    groups = [AdapterGroup(1, Program(_ops(0, Template()), depth), torch.zeros(4096)) for depth in (2, 3)]
    if isinstance(backend, NativeBackend):
        with pytest.raises(AssertionError, match=r"depths \[2, 3\]"):
            backend.group(groups, (1, 1))


def _with_shared_tensors() -> tuple[Program, list[Tensor]]:
    """A program of every kind of op, and the tensors that its adapters share."""
    shared = list[Tensor]()

    def share(*shape: int) -> Tensor:
        shared.append(torch.ones(shape))
        return shared[-1]

    gate = Gate("x", 0, share(HIDDEN), share())
    base = LayerNorm(share(HIDDEN), share(HIDDEN), 1e-5)
    steps = MatmulStep(share(HIDDEN, 2)), MatmulStep(share(2, HIDDEN), share(HIDDEN))
    return Program(
        [
            AddedBias("output", 0, share(HIDDEN), share(HIDDEN)), Scaled("output", 0, share(HIDDEN)),
            FusedMatmul("ffn", 0, steps, reads=Normed(0, base), gate=gate), NormWeights(1, share(HIDDEN), None),
            PrefixKeys(0, share(1, 1, HIDDEN), share(1, 1, HIDDEN), gate),
        ],
        1,
    ), shared  # fmt: skip


def test_a_compiled_program_keeps_what_it_points_to():
    """All tensors that its adapters share, but not the program, with which it leaves the backend."""
    program, shared = _with_shared_tensors()
    compiled, known = compile_program(program), weakref.ref(program)
    tensors = [weakref.ref(tensor) for tensor in shared]
    del program, shared
    gc.collect()
    assert known() is None
    assert None not in [tensor() for tensor in tensors]
    del compiled
    gc.collect()
    assert [tensor() for tensor in tensors] == [None] * len(tensors)


@pytest.mark.parametrize("gated", [False, True])
def test_a_gain_scales_the_last_bias_too(gated: bool, backend: Backend):
    cut = Template()
    steps = MatmulStep(cut(HIDDEN, 5)), MatmulStep(cut(5, HIDDEN), cut(HIDDEN))
    gate = Gate("x", 0, cut(HIDDEN), cut()) if gated else None
    flat, x = torch.randn(4096, generator=torch.Generator().manual_seed(0)) / 3, _draw(1)

    def added(gain: float) -> Tensor:
        program = Program([FusedMatmul("ffn", 0, steps, gain=gain, gate=gate)], 1)
        groups = [AdapterGroup(len(LENGTHS), program, flat)]
        return backend.group(groups, LENGTHS).act("ffn", 0, torch.zeros_like(x), x)

    torch.testing.assert_close(added(3.0), 3 * added(1.0))
