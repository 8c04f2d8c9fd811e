"""Activations in torch, and by the native kernels, alone and fused in a product."""

from functools import partial

import pytest
import torch
from peltier_backbone.linear.activation import Activation, activate
from peltier_backbone.linear.quantized_linear import QuantizedLinear
from peltier_backbone.native.choice import kernels_in_use, load_library
from peltier_backbone.native.library import Library
from torch import Tensor
from torch.nn import functional as F

from tests.support import inner_kernels
from tests.support.levels import fastest_level

EXACT = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_new": lambda x: F.gelu(x, approximate="tanh"),
    "swish": F.silu,
}


def _library() -> Library:
    with kernels_in_use(fastest_level()):
        library = load_library()
    assert library is not None
    return library


def _draw(*shape: int) -> Tensor:
    return 3 * torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


@pytest.mark.parametrize("activation", list(EXACT))
@pytest.mark.parametrize("native", [False, True], ids=["torch", "native"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_activations(activation: Activation, native: bool, dtype: torch.dtype):
    """Of whole rows, and of the first half of the columns times the second, by both kernels."""
    x = _draw(5, 38).to(dtype)
    expected = EXACT[activation](x.double())
    tolerance = 1e-5 if dtype == torch.float32 else 2**-7
    compute = partial(inner_kernels.activate, _library()) if native else activate
    torch.testing.assert_close(compute(x.clone(), activation).double(), expected, atol=tolerance, rtol=tolerance)
    gated = compute(x.clone(), activation, gated=True).double()
    wanted = expected[:, :19] * x.double()[:, 19:]
    torch.testing.assert_close(gated, wanted, atol=2 * tolerance, rtol=2 * tolerance)


@torch.inference_mode()
def test_a_fused_activation_is_the_same():
    """So a batch whose adapters change the sums before it answers the other rows with the same bits."""
    x, weight = _draw(9, 20), _draw(70, 20)
    own = QuantizedLinear(weight)._weight
    library = _library()
    packed = library.pack_int8(own.values, own.scales)
    for activation in ("relu", "gelu"):
        fused = library.multiply_int8(x, packed, activation)
        assert torch.equal(fused, inner_kernels.activate(library, library.multiply_int8(x, packed), activation))
