"""Maps whose keys and values several heads share."""

import pytest
import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.linear.linear import LinearKernel, NativeLinear, PlainLinear
from peltier_backbone.linear.quantized_linear import NativeQuantizedLinear, QuantizedLinear
from peltier_backbone.linear.shared_heads import SharedHeads

HEADS, KEY_HEADS, SIZE, WIDTH = 6, 2, 4, 10
KERNELS = (PlainLinear, NativeLinear, QuantizedLinear, NativeQuantizedLinear)


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_each_head_has_the_keys_and_values_of_its_group(kernel: LinearKernel):
    """Results, gradients and the plain weight are those of a map in which the rows of each key and value are there once
    for each of its heads."""
    generator = torch.Generator().manual_seed(0)
    query = torch.randn(HEADS * SIZE, WIDTH, generator=generator)
    key, value = (torch.randn(KEY_HEADS * SIZE, WIDTH, generator=generator) for _ in range(2))
    repeated = [x.unflatten(0, (KEY_HEADS, SIZE)).repeat_interleave(3, 0).flatten(0, 1) for x in (key, value)]
    shared = SharedHeads(kernel(torch.cat((query, key, value))), HEADS, KEY_HEADS)
    whole = kernel(torch.cat((query, *repeated)))
    torch.testing.assert_close(shared.weights()[0], whole.weights()[0])
    gradients = []
    for linear in (shared, whole):
        x = torch.randn(5, WIDTH, generator=torch.Generator().manual_seed(1)).requires_grad_()
        y = linear(x)
        (y * torch.linspace(-1, 1, y.shape[1])).sum().backward()
        gradients.append((y, x.grad))
    # Sums of 72 products, in another order.
    torch.testing.assert_close(*gradients, atol=72 * 2**-23, rtol=72 * 2**-23)


def test_the_product_has_each_shared_key_once(eurobert: Backbone, eurobert_int8: Backbone):
    """The kernels read 48 queries, 24 keys and 24 values for four heads that share by twos, in every precision."""
    for backbone in (eurobert, eurobert_int8):
        placed = backbone.bert.layers[0].attention.query_key_value.place()  # type: ignore[union-attr]
        assert placed is not None
        assert (placed.inner, placed.outer) == (48, 96)
