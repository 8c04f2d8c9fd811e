"""Rotary positions."""

import pytest
import torch
from peltier_backbone.attention.rotary import Rotary
from peltier_backbone.native.choice import kernels_in_use, load_library

from tests.support import inner_kernels
from tests.support.levels import fastest_level

CPU = torch.device("cpu")


@torch.inference_mode()
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [2, 12, 64, 70])
def test_native_turns_are_those_of_torch(size: int, dtype: torch.dtype):
    """To the rounding of the dtype, for heads of any even size and positions in any order; values are not touched."""
    rotary = Rotary.create(10_000.0, 50, size, CPU)
    qkv, positions = torch.randn(7, 3 * 2 * size).to(dtype), torch.tensor([3, 0, 49, 1, 1, 20, 2])
    native, found = qkv.clone(), rotary.rotate(qkv, positions)
    with kernels_in_use(fastest_level()):
        library = load_library()
    assert library is not None
    inner_kernels.rotate(library, native, rotary.turns, positions, 4)
    assert torch.equal(native[:, 4 * size :], qkv[:, 4 * size :])
    torch.testing.assert_close(native, found)


def test_products_depend_on_the_distance():
    """A query and a key that are moved together have the same product."""
    rotary = Rotary.create(10_000.0, 50, 8, CPU)
    row = torch.randn(1, 3 * 8).double().expand(2, -1)

    def product(query: int, key: int) -> torch.Tensor:
        turned = rotary.rotate(row.requires_grad_(), torch.tensor([query, key]))
        return turned[0, :8] @ turned[1, 8:16]

    torch.testing.assert_close(product(2, 9), product(31, 38), atol=1e-5, rtol=1e-5)
    assert (product(2, 9) - product(9, 2)).abs() > 1e-3
