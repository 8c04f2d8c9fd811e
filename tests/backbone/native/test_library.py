"""The native kernels against torch in float64, each library that this processor can run."""

import math
import platform
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peltier_backbone.native import library
from peltier_backbone.native.chain import Chain, Product
from peltier_backbone.native.library import Activation, Library, Runs, load_library
from peltier_backbone.native.scattered import Scattered
from peltier_backbone.norm import LayerNorm, RMSNorm
from torch import Tensor
from torch.nn import functional as F

FOLDER = Path(library.__file__).parent
DTYPES = (torch.float32, torch.bfloat16)
ACTIVATIONS = {
    "none": lambda x: x,
    "relu": F.relu,
    "swish": F.silu,
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "gelu": F.gelu,
}
_RUNS_HERE = {"AVX512": ("avx512", "avx2", "plain"), "AVX2": ("avx2", "plain")}

pytestmark = pytest.mark.skipif(load_library() is None, reason="the project was installed without a C compiler")


@pytest.fixture(scope="module", params=_RUNS_HERE.get(torch.backends.cpu.get_cpu_capability(), ("plain",)))
def native(request: pytest.FixtureRequest) -> Library:
    return Library(FOLDER / f"{request.param}.so")


def _draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _groups(lengths: list[int]) -> Tensor:
    return torch.repeat_interleave(torch.arange(len(lengths)), torch.tensor(lengths))


def _close(found: Tensor, exact: Tensor, inner: int = 1) -> None:
    """Rounded as sums of `inner` products in float32 are, and once more where the answer is bfloat16."""
    size = float(exact.abs().max()) + 1.0
    once = 2**-8 if found.dtype == torch.bfloat16 else 0.0
    torch.testing.assert_close(found.double(), exact, atol=size * (inner + 8) * 2**-23, rtol=once)


@given(
    lengths=st.lists(st.integers(0, 20), min_size=1, max_size=5).filter(any),
    fold=st.sampled_from((1, 3)),
    inner=st.sampled_from((1, 7, 16, 70)),
    outer=st.sampled_from((1, 2, 15, 16, 17, 33, 48, 100)),
    dtypes=st.tuples(st.sampled_from(DTYPES), st.sampled_from(DTYPES)),
    activation=st.sampled_from([*ACTIVATIONS]),
    options=st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_each_row_meets_its_groups_matrix(
    native: Library, lengths: list[int], fold: int, inner: int, outer: int, dtypes: tuple[torch.dtype, torch.dtype],
    activation: Activation, options: tuple[bool, bool, bool],
) -> None:  # fmt: skip
    """act(x W + b) * scale, written or added, of windows of wider tensors, for groups of any size."""
    biased, scaled, added = options
    rows, groups = sum(lengths) * fold, len(lengths)
    x = _draw(rows, inner + 3, seed=1).to(dtypes[0])[:, 2 : inner + 2]
    weight = _draw(groups, inner + 1, outer + 2, seed=2)[:, 1:, 1 : outer + 1]
    bias = _draw(groups, outer, seed=3) if biased else None
    scale = _draw(rows, 1, seed=4) if scaled else None
    whole = _draw(rows, outer + 5, seed=5).to(dtypes[1])
    y = whole.clone()
    own = _groups([length * fold for length in lengths])
    exact = torch.einsum("ri,rio->ro", x.double(), weight.double()[own])
    exact = exact if bias is None else exact + bias.double()[own]
    exact = ACTIVATIONS[activation](exact)
    exact = exact if scale is None else exact * scale.double()
    exact = exact + whole[:, 3:-2].double() if added else exact
    native.linear(y[:, 3:-2], x, weight, bias, Runs(lengths), fold=fold, scale=scale, activation=activation, add=added)
    _close(y[:, 3:-2], exact, inner)
    assert torch.equal(y[:, :3], whole[:, :3])
    assert torch.equal(y[:, -2:], whole[:, -2:])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("outer", [1, 16, 40, 100])
def test_a_row_never_feels_its_neighbours(native: Library, outer: int, dtype: torch.dtype) -> None:
    """A row's product is the same to the last bit alone, in the middle of any tile, and in any group."""
    x, weight = _draw(23, 130).to(dtype), _draw(1, 130, outer, seed=1)
    together = torch.empty(23, outer)
    native.linear(together, x, weight, None, Runs((23,)))
    for first, last in ((0, 1), (5, 7), (3, 16), (8, 23)):
        found = torch.empty(last - first, outer)
        native.linear(found, x[first:last], weight, None, Runs((last - first,)))
        assert torch.equal(found, together[first:last])
    apart = torch.empty(23, outer)
    native.linear(apart, x, weight.expand(3, -1, -1), None, Runs((6, 1, 16)))
    assert torch.equal(apart, together)


@pytest.fixture
def threads() -> Iterator[Callable[[int], None]]:
    """Sets how many threads compute, as a runner does."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@torch.inference_mode()
def test_threads_change_no_bit(native: Library, threads: Callable[[int], None], dtype: torch.dtype) -> None:
    """Whoever computes a row, of sizes that are worth several threads, in groups that they do not divide evenly."""
    lengths, width, heads = [700, 1, 403], 256, 8
    x, qkv = _draw(1104, width).to(dtype), _draw(1104, 3 * width, seed=1).to(dtype)
    down, up, bias = _draw(3, 2, width, 9, seed=2), _draw(3, 2, 9, width, seed=3), _draw(3, width, seed=4)
    runs, seen = Runs(lengths), torch.tensor(lengths)
    chain = Chain(native, [Product(Scattered.of(down), activation="relu"), Product(Scattered.of(up))], runs)
    wide = _draw(3, width, 64, seed=5)

    def compute() -> list[Tensor]:
        product, changed = torch.empty(1104, 64), x.clone()
        native.linear(product, x, wide, None, runs)
        chain.add(changed, x, 1)
        norm = native.norm(x, None, bias, None, runs, LayerNorm(bias[0], bias[1], 1e-5))
        return [product, changed, norm, native.attend(qkv, runs, seen, heads, None)]

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
    """Into a window of columns, each row its group's."""
    lengths, bias = [2, 0, 5], _draw(3, 37)
    whole = _draw(7, 50, seed=1).to(dtype)
    y = whole.clone()
    native.add(y[:, 10:47], bias, Runs(lengths))
    _close(y[:, 10:47], whole[:, 10:47].double() + bias.double()[_groups(lengths)])
    assert torch.equal(y[:, 47:], whole[:, 47:])


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("width", [5, 48, 100])
@pytest.mark.parametrize("kind", [LayerNorm, RMSNorm])
def test_norms_have_their_groups_weights(
    native: Library, kind: type[LayerNorm | RMSNorm], width: int, dtype: torch.dtype
) -> None:
    """Layer norm and RMS norm of a sum, with and without a bias, rounded once."""
    lengths = [3, 1, 4]
    x, residual = (_draw(8, width, seed=seed).to(dtype) + 3 for seed in (1, 2))
    weight, bias = _draw(3, width, seed=3), _draw(3, width, seed=4)
    base = SimpleNamespace(eps=1e-5, centered=kind.centered)
    for more, shift in ((None, None), (residual, bias)):
        summed = x.double() if more is None else x.double() + more.double()
        plain = F.layer_norm(summed, (width,), eps=1e-5) if kind.centered else F.rms_norm(summed, (width,), eps=1e-5)
        found = native.norm(x, more, weight, shift, Runs(lengths), base)
        assert (found is x) == (more is not None)
        exact = plain * weight.double()[_groups(lengths)]
        _close(found, exact if shift is None else exact + shift.double()[_groups(lengths)], 16)
        assert found.dtype == dtype


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_gates_are_means_over_rows(native: Library, dtype: torch.dtype) -> None:
    """Of sigmoids of scores, each row with its group's weights."""
    lengths, groups = [2, 1, 6, 3], torch.tensor([0, 0, 1, 2])
    x, weight, bias = _draw(12, 70).to(dtype), _draw(3, 70, seed=1) / 8, _draw(3, seed=2)
    own = groups[_groups(lengths)]
    tokens = ((x.double() * weight.double()[own]).sum(-1) + bias.double()[own]).sigmoid()
    exact = torch.stack([piece.mean() for piece in tokens.split(lengths)])[:, None]
    _close(native.gate(x, weight, bias, Runs(lengths), groups), exact, 70)


@given(
    lengths=st.lists(st.integers(1, 70), min_size=1, max_size=4),
    hidden=st.integers(0, 3),
    heads=st.sampled_from((1, 3)),
    size=st.sampled_from((5, 16, 32, 40)),
    prefix_len=st.sampled_from((0, 1, 9)),
    dtype=st.sampled_from(DTYPES),
)
def test_rows_attend_to_themselves(
    native: Library, lengths: list[int], hidden: int, heads: int, size: int, prefix_len: int, dtype: torch.dtype
) -> None:
    """Softmax attention of each row and head over its prefix and what it may see of itself."""
    seen = torch.tensor([max(length - hidden, 1) for length in lengths])
    qkv = (2 * _draw(sum(lengths), 3 * heads * size)).to(dtype)
    prefix = _draw(2, len(lengths), heads, prefix_len, size, seed=1).to(dtype)
    found = native.attend(qkv, Runs(lengths), seen, heads, (prefix[0], prefix[1]) if prefix_len else None)
    for row, piece in enumerate(qkv.double().split(lengths)):
        query, key, value = piece.view(-1, 3, heads, size).permute(1, 2, 0, 3)
        keys, values = (
            torch.cat((more[row].double(), own[:, : seen[row]]), 1)
            for more, own in zip(prefix, (key, value), strict=True)
        )
        weights = torch.softmax(query @ keys.transpose(1, 2) / math.sqrt(size), -1)
        _close(found.split(lengths)[row], (weights @ values).transpose(0, 1).flatten(1), 150)


def test_what_is_not_a_number_stays_in_its_row(native: Library) -> None:
    """A broken key spoils its own row and head, and nothing else."""
    qkv = _draw(9, 3 * 8)
    qkv[2, 8 + 1] = math.nan
    found = native.attend(qkv, Runs((4, 5)), torch.tensor([4, 5]), 2, None)
    assert bool(found[:4, :4].isnan().all())
    assert bool(found[:4, 4:].isfinite().all())
    assert bool(found[4:].isfinite().all())


@pytest.mark.parametrize("activation", [*ACTIVATIONS])
def test_activations_are_those_of_torch(native: Library, activation: Activation) -> None:
    """From where they vanish to where they are the identity; infinities and what is not a number come through."""
    x = torch.cat((torch.linspace(-120, 120, 4001), torch.linspace(-6, 6, 4001)))[:, None]
    found, one = torch.empty_like(x), torch.ones(1, 1, 1)
    native.linear(found, x, one, None, Runs((len(x),)), activation=activation)
    torch.testing.assert_close(found.double(), ACTIVATIONS[activation](x.double()), atol=1e-6, rtol=1e-6)
    odd, y = torch.tensor([[math.nan], [math.inf]]), torch.empty(2, 1)
    native.linear(y, odd, one, None, Runs((2,)), activation=activation)
    assert y[0].isnan()
    assert y[1] == math.inf


def test_what_is_not_a_number_stays_so_in_bfloat16(native: Library) -> None:
    """A broken adapter is recognised by it."""
    x, y = torch.full((1, 4), math.nan, dtype=torch.bfloat16), torch.empty(1, 3, dtype=torch.bfloat16)
    native.linear(y, x, torch.ones(1, 4, 3), None, Runs((1,)))
    assert bool(y.isnan().all())


def test_a_library_of_other_sources_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a new install after a change its arguments may be others; it is left out, with a line in the log."""
    for path in FOLDER.glob("*.*"):
        shutil.copy(path, tmp_path)
    (tmp_path / "lanes.h").write_text("/* changed */")
    monkeypatch.setattr(library, "_FOLDER", tmp_path)
    with pytest.raises(OSError, match="was built from other sources than the ones beside it"):
        Library(tmp_path / f"{_loaded().name}.so")
    assert load_library.__wrapped__() is None


def test_a_library_that_computes_wrongly_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is compared with torch before it serves."""
    monkeypatch.setattr(Library, "linear", lambda self, y, *rest, **options: y.zero_())
    assert load_library.__wrapped__() is None


def test_a_machine_without_libraries_has_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As after an install without a compiler: no error and no warning."""
    monkeypatch.setattr(library, "_FOLDER", tmp_path)
    assert load_library.__wrapped__() is None


def _loaded() -> Library:
    found = load_library()
    assert found is not None
    return found
