"""The norms compared with transformers, and with other weights."""

import pytest
import torch
from peltier_backbone.linear.norm import LayerNorm, RMSNorm
from transformers.models.t5.modeling_t5 import T5LayerNorm


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-6), (torch.bfloat16, 2**-7)], ids=str)
def test_rms_norm_is_t5s(dtype: torch.dtype, tolerance: float):
    """To rounding in float32, and to one unit in the last place in bfloat16, where both take the mean in float32."""
    x = torch.randn(5, 48, generator=torch.Generator().manual_seed(0), dtype=torch.float32).to(dtype) * 30
    theirs = T5LayerNorm(48, eps=1e-6).to(dtype)
    torch.nn.init.normal_(theirs.weight)
    found = RMSNorm(theirs.weight.detach(), 1e-6)(x)
    assert found.dtype == dtype
    torch.testing.assert_close(found, theirs(x).detach(), atol=tolerance, rtol=tolerance)


def test_a_row_of_zeros_stays_finite():
    """The epsilon is what keeps it so."""
    assert torch.equal(RMSNorm(torch.ones(4), 1e-6)(torch.zeros(1, 4)), torch.zeros(1, 4))


@pytest.mark.parametrize("biased", [False, True])
def test_other_weights_take_the_place_of_the_own(biased: bool):
    """`with_weights` is the norm that was made with them; T5's has a bias only where BitFit adds one."""
    x, weight, bias = torch.randn(3, 4, 8, generator=torch.Generator().manual_seed(1))
    weight, bias = weight[0], bias[0] if biased else None
    found = RMSNorm(torch.ones(8), 1e-6).with_weights(x, weight, bias)
    expected = RMSNorm(weight, 1e-6)(x) + (0 if bias is None else bias)
    assert torch.equal(found, expected)
    other = LayerNorm(torch.ones(8), torch.ones(8), 1e-5).with_weights(x, weight, bias)
    assert torch.equal(other, LayerNorm(weight, torch.zeros(8) if bias is None else bias, 1e-5)(x))
