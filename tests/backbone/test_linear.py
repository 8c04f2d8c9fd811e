"""The two linear kernels give the same results."""

import pytest
import torch
from peltier_backbone import linear
from peltier_backbone.linear import PackedLinear, PlainLinear, choose_linear
from torch import Tensor
from torch.nn import functional as F

SIZES = [(1, 1), (3, 5), (48, 48), (88, 48), (33, 130)]  # out, in
TOKENS = (1, 2, 17, 64)


def _draw(out: int, width: int, dtype: torch.dtype) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(out)
    return (torch.randn(out, width, generator=generator) / width**0.5).to(dtype), torch.randn(
        out, generator=generator
    ).to(dtype)


def _close(one: Tensor, other: Tensor) -> None:
    """float32 to another order of summation; bfloat16 to one unit in its last place."""
    tolerance = 1e-5 if one.dtype == torch.float32 else 2**-7
    torch.testing.assert_close(one, other, atol=tolerance, rtol=tolerance)


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_packed_equals_plain(size: tuple[int, int], dtype: torch.dtype, biased: bool):
    """Both kernels, with and without a bias and the fused activations, for any number of tokens."""
    weight, bias = _draw(*size, dtype)
    packed, plain = (kernel(weight, bias if biased else None) for kernel in (PackedLinear, PlainLinear))
    for tokens in TOKENS:
        x = torch.randn(tokens, size[1], generator=torch.Generator().manual_seed(tokens)).to(dtype)
        _close(packed(x), plain(x))
        _close(packed.gelu(x), plain.gelu(x))
        _close(packed.relu(x), plain.relu(x))
        assert packed(x).shape == (tokens, size[0])


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_the_packed_weight_is_the_weight(size: tuple[int, int]):
    """Un-packing gives the very bits back: hashing the weights in memory is honest."""
    weight, bias = _draw(*size, torch.float32)
    dense, kept = PackedLinear(weight, bias).weights()
    assert torch.equal(dense, weight)
    assert torch.equal(kept, bias)


@pytest.mark.parametrize("activation", ["__call__", "gelu", "relu"])
def test_gradients_pass_through_the_frozen_map(activation: str):
    """The backward of the packed kernel is autograd's own, and the weight asks for no gradient."""
    weight, bias = _draw(33, 20, torch.float32)
    gradients = []
    for kernel in (PackedLinear, PlainLinear):
        x = torch.randn(6, 20, generator=torch.Generator().manual_seed(0)).requires_grad_()
        y = getattr(kernel(weight, bias), activation)(x)
        (y * torch.linspace(-1, 1, 33)).sum().backward()
        gradients.append(x.grad)
    assert gradients[0] is not None
    torch.testing.assert_close(gradients[0], gradients[1], atol=1e-5, rtol=1e-5)


def test_the_gradient_is_numerically_right():
    """Against finite differences, in float64 steps of float32 values."""
    weight, bias = _draw(5, 7, torch.float32)
    x = torch.randn(3, 7, generator=torch.Generator().manual_seed(1)).requires_grad_()
    PackedLinear(weight, bias)(x).sum().backward()
    torch.testing.assert_close(x.grad, weight.sum(0).expand(3, 7), atol=1e-6, rtol=1e-6)


def test_a_non_contiguous_input_is_fine():
    """Slices of the fused projection reach the kernels as views."""
    weight, bias = _draw(5, 4, torch.float32)
    x = torch.randn(6, 12)[:, 4:8]
    _close(PackedLinear(weight, bias)(x), F.linear(x, weight, bias))


def test_off_the_cpu_the_plain_kernel_runs():
    """oneDNN is a CPU library."""
    assert choose_linear(torch.device("cuda"), torch.float32) is PlainLinear


@pytest.mark.parametrize("error", [RuntimeError, AttributeError, NotImplementedError])
def test_without_the_private_operator_the_plain_kernel_runs(error: type[Exception], monkeypatch: pytest.MonkeyPatch):
    """Another torch may lack it: then serving is slower, never broken."""

    def refuse(*_: object) -> Tensor:
        raise error("no such operator")

    monkeypatch.setattr(linear, "_onednn", refuse)
    assert choose_linear(torch.device("cpu"), torch.float32) is PlainLinear


def test_a_wrong_kernel_is_never_chosen(monkeypatch: pytest.MonkeyPatch):
    """A fast kernel with wrong products loses to the slow right one."""
    monkeypatch.setattr(linear, "_onednn", lambda x, packed, bias, activation="none": torch.zeros(len(x), 1024))
    assert choose_linear(torch.device("cpu"), torch.float32) is PlainLinear
