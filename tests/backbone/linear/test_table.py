"""Tables of embeddings, plain and in 8 bits."""

import torch
from peltier_backbone.linear.quantized_linear import QuantizedLinear, quantize_weight
from peltier_backbone.linear.table import PlainTable, QuantizedTable
from torch import Tensor

IDS = torch.tensor([4, 0, 4])


def _weight() -> Tensor:
    return torch.randn(6, 8, generator=torch.Generator().manual_seed(0))


def test_a_plain_table_copies_its_rows():
    """The caller may change what it reads."""
    weight = _weight()
    rows = PlainTable(weight)(IDS)
    assert torch.equal(rows, weight[IDS])
    rows.zero_()
    assert weight[IDS].all()


def test_a_quantized_table_is_near_its_weight():
    """To half of each entry's step."""
    weight = _weight()
    table = QuantizedTable(weight)
    assert torch.equal(table(IDS), table.weight()[IDS])
    steps = quantize_weight(weight).scales[:, None]
    assert ((table.weight() - weight).abs() <= steps * 0.501).all()


def test_a_shared_table_reads_the_map():
    """The same rows as a table of its own."""
    weight = _weight()
    assert torch.equal(QuantizedTable(weight, QuantizedLinear(weight))(IDS), QuantizedTable(weight)(IDS))
