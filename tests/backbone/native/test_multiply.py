"""Products with frozen weights against torch in float64, each library that this processor can run."""

import math
import platform
import subprocess
import sys
from collections.abc import Iterator

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peltier_backbone.linear.activation import Activation
from peltier_backbone.native.library import Library
from torch import Tensor
from torch.nn import functional as F

from tests.support.levels import LEVELS

DTYPES = (torch.float32, torch.bfloat16)
ACTIVATIONS = {"none": lambda x: x, "relu": F.relu, "gelu": F.gelu}


def _draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


def _multiply(
    native: Library, x: Tensor, weight: Tensor, bias: Tensor | None = None, activation: Activation = "none"
) -> Tensor:  # fmt: skip
    return native.multiply(x, native.pack(weight), bias, activation)


@given(
    rows=st.sampled_from((1, 2, 15, 16, 17, 32, 33, 49, 100)),
    inner=st.sampled_from((1, 7, 16, 31, 32, 33, 64, 70, 801)),
    outer=st.sampled_from((1, 15, 16, 17, 32, 33, 48, 49, 80, 96, 100)),
    dtype=st.sampled_from(DTYPES),
    activation=st.sampled_from([*ACTIVATIONS]),
    biased=st.booleans(),
)
def test_products_are_those_of_torch(native, rows, inner, outer, dtype, activation, biased):
    """act(x W^T + b) of windows of wider tensors, at any size. Each of a sum's terms is rounded at most once, a result
    in bfloat16 twice more."""
    x, weight = _draw(rows, inner + 3).to(dtype)[:, 2 : inner + 2], _draw(outer, inner, seed=1).to(dtype)
    bias = _draw(outer, seed=2) if biased else None
    exact = F.linear(x.double(), weight.double(), None if bias is None else bias.double())
    size = F.linear(x.double().abs(), weight.double().abs(), None if bias is None else bias.double().abs())
    allowed = size * (inner + 8) * 2**-23 + 1e-6
    exact = ACTIVATIONS[activation](exact)
    if dtype == torch.bfloat16:
        allowed += exact.abs() * 2**-7 + size * 2**-8
    assert bool(((_multiply(native, x, weight, bias, activation).double() - exact).abs() <= 1.2 * allowed).all())


@pytest.mark.parametrize("inner", [96, 384, 1536, 4096])
def test_products_are_as_precise_as_floats(native: Library, inner: int) -> None:
    """Partial sums of n random terms of size 1 are about the square root of n / 2, and each of n additions in float32
    is off by 2^-24 / sqrt(3) of one: in all by 0.41 n 2^-24. A lost part would be 2^-17 of each term."""
    x, weight = _draw(100, inner), _draw(96, inner, seed=1)
    off = _multiply(native, x, weight) - F.linear(x.double(), weight.double())
    assert float(off.square().mean().sqrt()) <= 0.5 * inner * 2**-24


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("inner", "outer"), [(64, 96), (70, 40), (800, 112), (1600, 33)])
def test_a_row_does_not_depend_on_the_others(native: Library, inner: int, outer: int, dtype: torch.dtype) -> None:
    """A row's product is the same to the last bit alone, and anywhere among up to seventy rows."""
    x, weight = _draw(70, inner).to(dtype), native.pack(_draw(outer, inner, seed=1).to(dtype))
    alone = torch.cat([native.multiply(row[None], weight, None, "gelu") for row in x])
    for rows in range(1, 71):
        assert torch.equal(native.multiply(x[-rows:], weight, None, "gelu"), alone[-rows:]), rows


@pytest.fixture
def _restored_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("rows", "inner", "outer"), [(700, 96, 130), (3, 1600, 1152), (90, 1600, 200)])
@pytest.mark.usefixtures("_restored_threads")
def test_threads_change_no_bit(native: Library, rows: int, inner: int, outer: int, dtype: torch.dtype) -> None:
    """The products are large enough for several threads."""
    x, weight = _draw(rows, inner).to(dtype), native.pack(_draw(outer, inner, seed=1).to(dtype))
    torch.set_num_threads(1)
    alone = native.multiply(x, weight, None)
    for count in (2, 3, 7):
        torch.set_num_threads(count)
        assert torch.equal(native.multiply(x, weight, None), alone)


@pytest.mark.parametrize("rows", [4, 40])
@pytest.mark.parametrize("broken", [math.inf, -math.inf, math.nan])
def test_what_is_not_finite_stays_in_its_row(native: Library, broken: float, rows: int) -> None:
    """It is what float32 makes of it: also where a weight has few bits, or is zero or infinite."""
    x, weight = _draw(rows, 70), _draw(50, 70, seed=1)
    weight[:3, 5], weight[3, 5], weight[4, 6] = 1.0, 0.0, math.inf
    whole, x = x.clone(), x.clone()
    x[2, 5] = broken
    found, exact = _multiply(native, x, weight), F.linear(x.double(), weight.double())
    torch.testing.assert_close(found.double(), exact, atol=1e-4, rtol=1e-5, equal_nan=True)
    others = [row for row in range(rows) if row != 2]
    assert torch.equal(found[others], _multiply(native, whole, weight)[others])


def test_the_largest_and_the_smallest_floats_are_multiplied(native: Library) -> None:
    """No part of a float overflows. What underflows may be zero."""
    x, weight = torch.tensor([[3.4e38], [-3.4e38], [1e-30], [1e-45]]), torch.tensor([[0.5], [-1.0], [1e-20]])
    torch.testing.assert_close(_multiply(native, x, weight), x @ weight.t(), rtol=1e-6, atol=2e-38)


# Denies arch_prctl's request for registers, as a sandbox may, and then loads a library.
_WITHOUT_PERMISSION = """
import ctypes, struct
libc = ctypes.CDLL(None, use_errno=True)
rules = [(0x20, 0, 0, 0), (0x15, 0, 3, 158), (0x20, 0, 0, 16), (0x15, 0, 1, 0x1023), (0x06, 0, 0, 0x50001),
         (0x06, 0, 0, 0x7fff0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *rule) for rule in rules))
filter = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(rules), ctypes.addressof(code)))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, filter) == 0, ctypes.get_errno()
from peltier_backbone.native.choice import load_library
print(load_library().name)
"""


@pytest.mark.slow
@pytest.mark.skipif(
    platform.system() != "Linux" or platform.machine() != "x86_64", reason="Linux on x86-64 grants the registers of AMX"
)
def test_without_permission_for_amx_another_library_serves() -> None:
    """A sandbox may refuse the registers of AMX to a process."""
    answer = subprocess.run([sys.executable, "-c", _WITHOUT_PERMISSION], capture_output=True, text=True, check=True)
    assert answer.stdout.strip() in [name for name in LEVELS if name != "amx"]
