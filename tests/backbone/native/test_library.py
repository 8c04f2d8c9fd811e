"""The native kernels against torch in float64, each library that this processor can run."""

import math
import platform
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peltier_backbone.linear.activation import Activation
from peltier_backbone.linear.norm import LayerNorm, RMSNorm
from peltier_backbone.native import interface, library, self_check
from peltier_backbone.native.choice import _survey
from peltier_backbone.native.example_layer import ExampleLayer
from peltier_backbone.native.library import Library
from peltier_backbone.native.program import (
    NativeGate,
    NativeNormWeights,
    NativeProgram,
    PlacedOp,
    place_op,
    place_prefix,
    step,
    vector,
)
from peltier_backbone.native.rows import PlacedRows, Table, TableGroup
from torch import Tensor
from torch.nn import functional as F

from tests.support import inner_kernels
from tests.support.inner_kernels import PlacedPrefixes
from tests.support.levels import LEVELS, fastest_level, skip_unless_permitted

FOLDER = Path(library.__file__).parent
DTYPES = (torch.float32, torch.bfloat16)
ACTIVATIONS = {
    "none": lambda x: x,
    "relu": F.relu,
    "swish": F.silu,
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "gelu": F.gelu,
    "tanh": torch.tanh,
}


def _attend(
    native: Library, qkv: Tensor, lengths: list[int], seen: list[int], heads: int,
    prefixes: PlacedPrefixes | None = None, *, rounded: bool = False, window: int | None = None,
) -> Tensor:  # fmt: skip
    """Each row attends to its first `seen` tokens, as a span of BERT does."""
    size, rows = qkv.shape[1] // (3 * heads), PlacedRows.packed(lengths, seen)
    return inner_kernels.attend(
        native, *qkv.chunk(3, -1), size, rows, heads, prefixes, scale=size**-0.5, rounded=rounded, window=window
    )


def _draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _adapt(
    native: Library, y: Tensor, x: Tensor, lengths: list[int], op_of: Callable[[int], PlacedOp]
) -> Tensor:  # fmt: skip
    """Adds each row's own op to y, in place; returns the gates."""
    programs = [NativeProgram([op_of(row)], 1, {}, 0, None) for row in range(len(lengths))]
    table, gates = Table(lengths, [TableGroup(1, program) for program in programs]), torch.empty(1, len(lengths))
    native.adapt(y, x, None, table, 0, gates)
    return gates[0]


def _product(native: Library, x: Tensor, weight: Tensor, lengths: list[int], **options: Any) -> Tensor:
    """Each row by its group's matrix, [rows, in] and [groups, in, out] to [rows, out]."""
    y = torch.zeros(len(x), weight.shape[-1])
    _adapt(native, y, x, lengths, lambda group: place_op(0, [step(weight[group], None, **options)]))
    return y


def _groups(lengths: list[int]) -> Tensor:
    return torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))


def _close(found: Tensor, exact: Tensor, inner: int = 1, *, more: float = 0.0) -> None:
    """Rounded as sums of `inner` products in float32 are, and once more where the answer is bfloat16; off by `more`."""
    size = float(exact.abs().max()) + 1.0
    once = 2**-8 if found.dtype == torch.bfloat16 else 0.0
    torch.testing.assert_close(found.double(), exact, atol=size * (inner + 8) * 2**-23 + more, rtol=once)


@given(
    lengths=st.lists(st.integers(0, 20), min_size=1, max_size=5).filter(any),
    inner=st.sampled_from((1, 7, 16, 70)),
    outer=st.sampled_from((1, 2, 15, 16, 17, 33, 48, 100)),
    dtypes=st.tuples(st.sampled_from(DTYPES), st.sampled_from(DTYPES)),
    activation=st.sampled_from([*ACTIVATIONS]),
    biased=st.booleans(),
    gain=st.sampled_from((1.0, 0.75)),
)
def test_each_row_meets_its_groups_matrix(native, lengths, inner, outer, dtypes, activation, biased, gain):
    """y + gain * act(x W + b), of windows of wider tensors, for groups of any size."""
    rows, groups = sum(lengths), len(lengths)
    x = _draw(rows, inner + 3, seed=1).to(dtypes[0])[:, 2 : inner + 2]
    weight = _draw(groups, inner + 1, outer + 2, seed=2)[:, 1:, 1 : outer + 1]
    bias = _draw(groups, outer, seed=3)
    whole = _draw(rows, outer + 5, seed=5).to(dtypes[1])
    y, own = whole.clone(), _groups(lengths)
    exact = torch.einsum("ri,rio->ro", x.double(), weight.double()[own])
    exact = gain * ACTIVATIONS[activation](exact + bias.double()[own] if biased else exact)

    def op_of(group: int) -> PlacedOp:
        one = step(weight[group], bias[group] if biased else None, activation=activation)
        return place_op(0, [one], column=3, gain=gain)

    _adapt(native, y, x, lengths, op_of)
    _close(y[:, 3:-2], exact + whole[:, 3:-2].double(), inner)
    assert torch.equal(y[:, :3], whole[:, :3])
    assert torch.equal(y[:, -2:], whole[:, -2:])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("outer", [1, 16, 40, 100])
def test_a_row_never_feels_its_neighbours(native: Library, outer: int, dtype: torch.dtype) -> None:
    """A row's product is the same to the last bit alone, in the middle of any tile, and in any group."""
    x, weight = _draw(23, 130).to(dtype), _draw(1, 130, outer, seed=1)
    together = _product(native, x, weight, [23])
    for first, last in ((0, 1), (5, 7), (3, 16), (8, 23)):
        assert torch.equal(_product(native, x[first:last], weight, [last - first]), together[first:last])
    assert torch.equal(_product(native, x, weight.expand(3, -1, -1), [6, 1, 16]), together)


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    """Sets how many threads compute, as a runner does."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@torch.inference_mode()
def test_threads_change_no_bit(native: Library, threads: Callable[[int], None], dtype: torch.dtype) -> None:
    """Whoever computes a row, of sizes that are worth several threads, in groups that they do not divide evenly; also
    where a gate reads what the same call changes."""
    lengths, width, heads = [700, 1, 403], 256, 8
    x, qkv = _draw(1104, width).to(dtype), _draw(1104, 3 * width, seed=1).to(dtype)
    down, up, bias = _draw(width, 9, seed=2), _draw(9, width, seed=3), _draw(width, seed=4)
    weight, shift = _draw(width, seed=5) / 16, _draw(1, seed=6)
    gate = NativeGate(vector(weight), vector(shift), 1, 0)
    steps = step(down, None, activation="relu"), step(up, bias)

    def compute() -> list[Tensor]:
        changed = x.clone()
        gates = _adapt(native, changed, changed, lengths, lambda _: place_op(0, steps, gate=gate))
        norm = native.norm(x, None, bias, None, LayerNorm(bias, bias, 1e-5))
        return [changed, gates, norm, _attend(native, qkv, lengths, lengths, heads)]

    threads(1)
    alone = compute()
    for count in (2, 5):
        threads(count)
        assert all(torch.equal(one, own) for one, own in zip(compute(), alone, strict=True))


@pytest.mark.skipif(platform.system() != "Linux" or platform.machine() != "x86_64", reason="as CI builds and runs it")
def test_threads_are_those_of_torch(native: Library) -> None:
    """The kernels were compiled for threads, and there are not two crowds of them in the process."""
    assert b"GOMP_parallel" in (FOLDER / f"{native.name}.so").read_bytes()
    maps = Path("/proc/self/maps").read_text().splitlines()
    # Other packages bring theirs under names of their own.
    assert len({line.split()[-1] for line in maps if "/libgomp.so" in line}) == 1


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_biases_are_added_in_place(native: Library, dtype: torch.dtype) -> None:
    """Into a window of columns, each row its group's, in the place of what was added before."""
    lengths, bias, replaced = [2, 0, 5], _draw(3, 37), _draw(37, seed=2)
    whole = _draw(7, 50, seed=1).to(dtype)
    y = whole.clone()
    fields = {"column": 10, "width": 37, "replaced": vector(replaced)}
    _adapt(native, y, y, lengths, lambda group: place_op(0, added=vector(bias[group]), **fields))
    _close(y[:, 10:47], whole[:, 10:47].double() + bias.double()[_groups(lengths)] - replaced.double())
    assert torch.equal(y[:, 47:], whole[:, 47:])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", [5, 48, 100])
@pytest.mark.parametrize("kind", [LayerNorm, RMSNorm])
def test_norms_have_their_groups_weights(native, kind, width, dtype):
    """Layer norm and RMS norm of a sum, with and without a bias, rounded once; without own weights by the shared ones,
    which are of either dtype."""
    lengths = [3, 1, 4]
    x, residual = (_draw(8, width, seed=seed).to(dtype) + 3 for seed in (1, 2))
    weight, bias = _draw(3, width, seed=3), _draw(3, width, seed=4)
    shared = weight[1].to(dtype)
    base = SimpleNamespace(eps=1e-5, centered=kind.centered)
    exact_weight = torch.stack((weight[0].double(), shared.double(), weight[2].double()))
    for more, shift in ((None, None), (residual, bias)):
        norms = [NativeNormWeights(vector(weight[k]), vector(shift if shift is None else shift[k])) for k in range(3)]
        programs = [NativeProgram([], 0, {} if k == 1 else {0: norms[k]}, 1, None) for k in range(3)]
        table = Table(lengths, [TableGroup(1, program) for program in programs])
        summed = x.double() if more is None else x.double() + more.double()
        plain = F.layer_norm(summed, (width,), eps=1e-5) if kind.centered else F.rms_norm(summed, (width,), eps=1e-5)
        common = None if shift is None else shift[1].to(dtype)
        found = native.norm(x, more, shared, common, base, table)
        assert (found is x) == (more is not None)
        exact = plain * exact_weight[_groups(lengths)]
        if shift is not None and common is not None:
            exact = exact + torch.stack((shift[0].double(), common.double(), shift[2].double()))[_groups(lengths)]
        _close(found, exact, 16)
        assert found.dtype == dtype


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("reads", [0, 1, 2], ids=["x", "sum", "norm"])
def test_gates_are_means_over_rows(native: Library, reads: int, dtype: torch.dtype) -> None:
    """Of sigmoids of scores, each row with its group's weights, of what the op reads."""
    lengths = [2, 1, 600, 3]
    x, residual = _draw(606, 70).to(dtype), _draw(606, 70, seed=3).to(dtype)
    weight, bias, norm = _draw(4, 70, seed=1) / 8, _draw(4, seed=2), _draw(70, seed=4)
    read = x.double() if reads == 0 else x.double() + residual.double()
    read = F.layer_norm(read, (70,), eps=1e-5) * norm.double() if reads == 2 else read
    own = _groups(lengths)
    tokens = ((read * weight.double()[own]).sum(-1) + bias.double()[own]).sigmoid()
    exact = torch.stack([piece.mean() for piece in tokens.split(lengths)])
    gates = [NativeGate(vector(weight[k]), vector(bias[k]), 1, 0) for k in range(4)]
    programs = [
        NativeProgram(
            [place_op(0, gate=gate, reads=reads, norm_weight=vector(norm), eps=1e-5, centered=1)], 1, {}, 0, None
        )
        for gate in gates
    ]
    found = torch.empty(1, 4)
    native.adapt(x, x, residual, Table(lengths, [TableGroup(1, one) for one in programs]), 0, found)
    _close(found[0], exact, 70)


@pytest.mark.parametrize("column", [0, 1])
def test_a_central_gate_is_a_share(native: Library, column: int) -> None:
    """The softmax over the means of what of two scores is above zero."""
    lengths, x, weight, bias = [4, 1], _draw(5, 20), _draw(20, 2, seed=1), _draw(2, seed=2)
    means = torch.stack([piece.mean(0) for piece in (x @ weight + bias).relu().split(lengths)])
    gate, y = NativeGate(vector(weight), vector(bias), 2, column), x.clone()
    _close(_adapt(native, y, x, lengths, lambda _: place_op(0, gate=gate)), means.softmax(-1)[:, column].double(), 20)
    assert torch.equal(x, y)


@given(
    lengths=st.lists(st.integers(1, 70), min_size=1, max_size=4),
    hidden=st.integers(0, 3),
    heads=st.sampled_from((1, 3)),
    size=st.sampled_from((5, 16, 32, 40)),
    prefix_len=st.sampled_from((0, 1, 9)),
    dtype=st.sampled_from(DTYPES),
    rounded=st.booleans(),
)
def test_rows_attend_to_themselves(native, lengths, hidden, heads, size, prefix_len, dtype, rounded):
    """Softmax attention of each row and head over its prefix and what it may see of itself. Every third row has a
    prefix times a gate, every third one without a gate, the others none. Products of bfloat16 round queries, keys,
    values and weights to it."""
    seen = [max(length - hidden, 1) for length in lengths]
    qkv = (2 * _draw(sum(lengths), 3 * heads * size)).to(dtype)
    prefix = _draw(len(lengths), 2, prefix_len, heads, size, seed=1).transpose(2, 3)  # [rows, 2, heads, prefix, size]
    gates = torch.tensor([(0.25, 1.0, math.nan)[row % 3] for row in range(len(lengths))])
    gate = NativeGate(vector(gates), vector(gates), 1, 0)  # its tensors are not read here
    placed = [place_prefix(0, *own, gate if row % 3 == 0 else None) for row, own in enumerate(prefix)]
    programs = [NativeProgram([own], 1, {}, 0, None) for own in placed]
    table = Table(lengths, [TableGroup(1, None if row % 3 == 2 else own) for row, own in enumerate(programs)])
    found = _attend(native, qkv, lengths, seen, heads, PlacedPrefixes(table, 0, gates), rounded=rounded)
    in_halves = (rounded or dtype == torch.bfloat16) and native.name in ("amx", "avx512_bf16", "neon_i8mm")

    def read(x: Tensor) -> Tensor:
        return x.bfloat16().double() if in_halves else x.double()

    for row, piece in enumerate(qkv.float().split(lengths)):
        query, key, value = piece.view(-1, 3, heads, size).permute(1, 2, 0, 3)
        scale, num = (0.0, 0) if row % 3 == 2 else (float(gates[row]), prefix_len)
        keys, values = (
            read(torch.cat((scale * more[:, :num], own[:, : seen[row]]), 1))
            for more, own in zip(prefix[row], (key, value), strict=True)
        )
        weights = torch.softmax(read(query * size**-0.5) @ keys.transpose(1, 2), -1)
        # bfloat16 has 8 bits: a rounded weight is off by at most 2^-8 of itself, and the sum of weighted values by that
        # of the sum of their sizes.
        more = (weights @ values.abs()).max() * 2**-8 if in_halves else 0.0
        _close(found.split(lengths)[row], (weights @ values).transpose(0, 1).flatten(1), 150, more=float(more))


@pytest.mark.parametrize(("window", "lengths"), [
    (1, [1, 150, 9, 65]), (9, [1, 150, 9, 65]), (70, [1, 150, 9, 65]), (300, [301, 900, 302, 1_250]),
])  # fmt: skip
@pytest.mark.parametrize("dtype", DTYPES)
def test_a_window_hides_far_keys(native: Library, window: int, lengths: list[int], dtype: torch.dtype) -> None:
    """Each query sees the gated prefix and the keys at most so far away, in rows shorter and longer than a block of
    queries or of keys. A row whose tokens all see each other has the very bits that it has without a window."""
    heads, size, prefix_len, gates = 2, 24, 3, torch.tensor([0.5, 0.25, 1.0, 2.0])
    qkv = (2 * _draw(sum(lengths), 3 * heads * size)).to(dtype)
    prefix = _draw(2, prefix_len, heads, size, seed=1).transpose(1, 2)
    program = NativeProgram(
        [place_prefix(0, *prefix, NativeGate(vector(gates), vector(gates), 1, 0))], 1, {}, 0, None
    )  # fmt: skip
    prefixes = PlacedPrefixes(Table(lengths, [TableGroup(len(lengths), program)]), 0, gates)
    found, whole = (
        _attend(native, qkv, lengths, lengths, heads, prefixes, window=own).split(lengths) for own in (window, None)
    )
    for row, piece in enumerate(qkv.double().split(lengths)):
        query, key, value = piece.view(-1, 3, heads, size).permute(1, 2, 0, 3)
        keys, values = (torch.cat((gates[row] * more, own), 1) for more, own in zip(prefix, (key, value), strict=True))
        places = torch.arange(len(piece))
        near = F.pad((places - places[:, None]).abs() <= window, (prefix_len, 0), value=True)
        exact = F.scaled_dot_product_attention(query, keys, values, near).transpose(0, 1).flatten(1)
        _close(found[row], exact, 150, more=0.1 if dtype == torch.bfloat16 else 0.0)
        assert torch.equal(found[row], whole[row]) == (len(piece) <= window + 1)


def test_what_is_not_a_number_stays_in_its_row(native: Library) -> None:
    """A broken key spoils its own row and head, and nothing else."""
    qkv = _draw(9, 3 * 8)
    qkv[2, 8 + 1] = math.nan
    found = _attend(native, qkv, [4, 5], [4, 5], 2)
    assert bool(found[:4, :4].isnan().all())
    assert bool(found[:4, 4:].isfinite().all())
    assert bool(found[4:].isfinite().all())


@pytest.mark.parametrize("activation", [*ACTIVATIONS])
def test_activations_are_those_of_torch(native: Library, activation: Activation) -> None:
    """From where they vanish to where they are the identity; infinities and what is not a number come through."""
    x, one = torch.cat((torch.linspace(-120, 120, 4001), torch.linspace(-6, 6, 4001)))[:, None], torch.ones(1, 1, 1)
    found = _product(native, x, one, [len(x)], activation=activation)
    torch.testing.assert_close(found.double(), ACTIVATIONS[activation](x.double()), atol=1e-6, rtol=1e-6)
    odd = _product(native, torch.tensor([[math.nan], [math.inf]]), one, [2], activation=activation)
    assert odd[0].isnan()
    assert odd[1] == (1 if activation == "tanh" else math.inf)


def test_what_is_not_a_number_stays_so_in_bfloat16(native: Library) -> None:
    """A broken adapter is recognised by it."""
    x, y = torch.full((1, 4), math.nan, dtype=torch.bfloat16), torch.zeros(1, 3, dtype=torch.bfloat16)
    weight = torch.ones(4, 3)
    _adapt(native, y, x, [1], lambda _: place_op(0, [step(weight, None)]))
    assert bool(y.isnan().all())


def test_a_library_of_other_sources_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a new install after a change its arguments may be others."""
    for path in FOLDER.glob("*.*"):
        shutil.copy(path, tmp_path)
    (tmp_path / "lanes.h").write_text("/* changed */")
    level = fastest_level()
    monkeypatch.setattr(interface, "_FOLDER", tmp_path)
    state = _survey(tmp_path / f"{level}.so")
    assert (state.library, state.reason) == (
        None,
        f"{level}.so was built from other sources than the ones beside it",
    )


def _wrong_in_threads(multiply: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """The product, with a wrong last row where the call is large enough for several threads."""

    def wrong(self: Library, x: Tensor, weight: Any, *rest: Any) -> Tensor:
        y = multiply(self, x, weight, *rest)
        if len(x) * weight.inner * weight.outer >= 2**22:
            y[-1] = 0
        return y

    return wrong


@pytest.mark.parametrize(
    ("owner", "name", "broken"),
    [
        (Library, "run_stack", lambda self, stack, x, *rest: x),
        (Library, "likeliest", lambda self, logits: logits.log_softmax(-1).min(-1)[::-1]),
        (Library, "multiply", _wrong_in_threads(Library.multiply)),
        (Library, "multiply_int8", _wrong_in_threads(Library.multiply_int8)),
    ],
)
def test_a_library_that_computes_otherwise_than_torch_is_refused(owner, name, broken, monkeypatch):
    """Products of all threads, 8-bit products, layers and tokens are compared before it serves."""
    path = FOLDER / f"{fastest_level()}.so"
    monkeypatch.setattr(owner, name, broken)
    state = _survey.__wrapped__(path)
    assert state.library is None
    assert " on this machine" in state.reason


_by_torch, _attention = ExampleLayer.by_torch, F.scaled_dot_product_attention


def _attends(change: Callable[..., tuple[Tensor, Tensor]]) -> tuple[Any, str, Any]:
    """Other queries and keys in the attention of torch."""

    def attend(query: Tensor, keys: Tensor, *rest: Any, **options: Any) -> Tensor:
        return _attention(*change(query, keys), *rest, **options)

    return F, "scaled_dot_product_attention", attend


def _adapters(change: Callable[..., dict[str, Any]]) -> tuple[Any, str, Any]:
    """Other weights of adapters in torch, from those of an adapter itself and of the first one."""

    def by_torch(self: ExampleLayer) -> Tensor:
        first, second, none = self._adapters
        self._adapters = [first._replace(**change(first, first)), second._replace(**change(second, first)), none]
        return _by_torch(self)

    return ExampleLayer, "by_torch", by_torch


SCORES = {
    "equal": lambda query, keys: (0 * query, keys),
    "negated": lambda query, keys: (-query, keys),
    "doubled": lambda query, keys: (2 * query, keys),
    "other head": lambda query, keys: (query, keys.flip(0)),
}
PARTS = {
    **{name: _attends(change) for name, change in SCORES.items()},
    **{
        f"{field} of the first": _adapters(lambda own, first, field=field: {field: getattr(first, field)})
        for field in ("bias", "norm", "norm_bias", "added", "prefix", "gate", "shift")
    },
    "zero keys": _adapters(lambda own, first: {"prefix": own.prefix * torch.tensor([0.0, 1.0]).view(2, 1, 1, 1)}),
    "no fold": _adapters(lambda own, first: {"down": own.down.flip(0)}),
    "no turn": (ExampleLayer, "_turn", lambda self, x: x),
    "all seen": (ExampleLayer, "_seen", lambda self, tokens, keys: torch.ones(tokens, keys, dtype=torch.bool)),
    "no activation": (F, "gelu", lambda x: x),
    "no feed-forward": (ExampleLayer, "_feed_forward", lambda self, x: x),
    "plain norms": (ExampleLayer, "_adapt_and_norm", lambda self, y, more, index: F.layer_norm(y + more, y.shape[1:])),
}


@pytest.mark.parametrize("dtype", [*DTYPES, torch.int8], ids=str)
@pytest.mark.parametrize("part", PARTS)
@torch.inference_mode()
def test_every_part_of_an_encoders_layer_is_compared(native, part, dtype, monkeypatch):
    """In each dtype, whichever of both computes it otherwise."""
    self_check.check_encoder(native, dtype)
    monkeypatch.setattr(*PARTS[part])
    with pytest.raises(RuntimeError, match=f"wrong layers of an encoder in {dtype}"):
        self_check.check_encoder(native, dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("broken", [
    *map(_attends, SCORES.values()), (self_check._Prefix, "join", lambda self, x, row, pairs: pairs.float()),
], ids=[*SCORES, "no prefix"])  # fmt: skip
@torch.inference_mode()
def test_every_part_of_a_decoding_step_is_compared(native, broken, dtype, monkeypatch):
    self_check.check_decoder(native, dtype)
    monkeypatch.setattr(*broken)
    with pytest.raises(RuntimeError, match=f"wrong layers of a decoder in {dtype}"):
        self_check.check_decoder(native, dtype)


@pytest.mark.parametrize("level", LEVELS)
def test_each_level_is_checked_before_it_serves(level: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong result of one level refuses that level, whichever others have passed."""
    skip_unless_permitted(level)
    monkeypatch.setattr(Library, "likeliest", lambda self, logits: logits.min(-1)[::-1])
    state = _survey.__wrapped__(FOLDER / f"{level}.so")
    assert (state.library, state.reason) == (None, f"{level} gives wrong tokens on this machine")
