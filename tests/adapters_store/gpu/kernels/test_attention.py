"""Attention in one launch, compared with plain products."""

import pytest
import torch
from peltier_adapters.ops.backend import AdapterGroup
from peltier_adapters.ops.op import Gate, PrefixKeys, Program
from peltier_backbone.native.rows import PlacedRow, PlacedRows
from torch import Tensor

from tests.adapters_store.gpu.kernels.cases import DTYPES, MAX_ELEMENTS, TRITON, Cutter, check, draw

HEADS, SIZE, PREFIX = 2, 12, 3
HIDDEN = HEADS * SIZE
# Queries and keys of each row, which lie apart; the second row does not see all of its keys.
QUERIES, KEYS, SEEN = (3, 40, 1), (3, 35, 7), (3, 30, 7)


def _plain(query: Tensor, key: Tensor, value: Tensor, bias: Tensor, scale: float) -> Tensor:
    """[queries, hidden] and [keys, hidden]."""
    q, k, v = (one.view(len(one), HEADS, SIZE).transpose(0, 1) for one in (query, key, value))
    context = torch.softmax(q @ k.transpose(1, 2) * scale + bias, -1) @ v
    return context.transpose(0, 1).flatten(1)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("biased", [True, False])
def test_each_row_attends_to_its_prefix_and_its_keys(biased: bool, dtype: torch.dtype):
    """Prefixes times the gate of the row, rows without a prefix, and biases, which prefixes do not have."""
    cut = Cutter()
    shape = (HEADS, PREFIX, SIZE)
    keys, values = (cut(PREFIX, HIDDEN).view(PREFIX, HEADS, SIZE).transpose(0, 1) for _ in range(2))
    assert keys.shape == shape
    prefix = PrefixKeys(0, keys, values, Gate("prefix", 0, cut(HIDDEN), cut()))
    program, plain = Program([prefix], 1), Program([], 1)
    flat = draw(MAX_ELEMENTS, seed=9) / 4
    flats = [TRITON[dtype].prepare(one, MAX_ELEMENTS).weights(flat) for one in (program, plain)]
    groups = [AdapterGroup(1, program, flats[0]), AdapterGroup(1), AdapterGroup(1, plain, flats[1])]
    ops = TRITON[dtype].group(groups, QUERIES)
    query = draw(sum(QUERIES), HIDDEN, seed=1)
    key, value = draw(sum(KEYS), 2 * HIDDEN, seed=2).chunk(2, -1)
    biases = [draw(HEADS, 41, 36, seed=3) if biased else None] * 3
    starts = [sum(KEYS[:row]) for row in range(3)]
    firsts = [sum(QUERIES[:row]) for row in range(3)]
    rows = PlacedRows.place([PlacedRow(*one) for one in zip(firsts, QUERIES, starts, SEEN, biases, strict=True)])
    x = query.to(dtype)
    ops.act("query", 0, x, x.clone())
    kernels, longest = ops.attention(0), max(QUERIES)
    found = kernels.attend(x, key.to(dtype), value.to(dtype), SIZE, rows.layout, longest, HEADS, scale=0.3)
    gate = (query[:3] @ _own(prefix.gate.weight, flat) + _own(prefix.gate.bias, flat)).sigmoid().mean()
    expected = []
    for row, (first, num, start, seen) in enumerate(zip(firsts, QUERIES, starts, SEEN, strict=True)):
        own_keys, own_values = key[start : start + seen], value[start : start + seen]
        bias = torch.zeros(HEADS, num, seen) if biases[row] is None else biases[row][:, :num, :seen]
        if row == 0:
            extra = [_own(one, flat).transpose(0, 1).reshape(PREFIX, HIDDEN) * gate for one in (keys, values)]
            own_keys, own_values = torch.cat((extra[0], own_keys)), torch.cat((extra[1], own_values))
            bias = torch.nn.functional.pad(bias, (PREFIX, 0))
        expected.append(_plain(query[first : first + num], own_keys, own_values, bias, 0.3))
    check(found, torch.cat(expected))


def _own(tensor: Tensor, flat: Tensor) -> Tensor:
    return flat.as_strided(tensor.shape, tensor.stride(), tensor.storage_offset())
