"""Gated activations in one launch, compared with torch."""

from typing import get_args

import pytest
import torch
from peltier_adapters.gpu.kernels.activation import gate
from peltier_adapters.ops.torch import ACTIVATIONS
from peltier_backbone.linear.activation import Activation

from tests.adapters_store.gpu.kernels.cases import DTYPES, check, draw


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("activation", get_args(Activation))
@pytest.mark.parametrize("shape", [(1, 24), (37, 300)])
def test_the_first_half_is_activated_and_multiplied(shape: tuple[int, int], activation: Activation, dtype: torch.dtype):
    """Fewer and more tokens and columns than a Triton program takes."""
    x = draw(shape[0], 2 * shape[1])
    left, right = x.chunk(2, -1)
    check(gate(x.to(dtype), activation), ACTIVATIONS[activation](left) * right)
