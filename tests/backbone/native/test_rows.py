"""Native attention to keys that lie anywhere, against torch in float64, each library that this processor can run."""

import pytest
import torch
from peltier_backbone.attention.relative import RowBias, create_bias
from peltier_backbone.native.library import Library
from peltier_backbone.native.program import NativeGate, NativeProgram, place_prefix, vector
from peltier_backbone.native.rows import LineBias, PlacedRow, PlacedRows, Table, TableGroup
from torch import Tensor

from tests.support import inner_kernels
from tests.support.inner_kernels import PlacedDistances, PlacedPrefixes

HEADS, SIZE = 3, 20


def _draw(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


def _exact(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, prefix: Tensor | None = None) -> Tensor:
    """One row's context [queries, heads * size] of queries, keys and values [tokens, heads, size] and a prefix
    [2, heads, prefix, size]."""
    logits = torch.einsum("qhs,khs->hqk", query.double(), keys.double())
    logits = logits if bias is None else logits + bias.double()
    own = values.double().transpose(0, 1)  # [heads, keys, size]
    if prefix is not None:
        before = torch.einsum("qhs,hks->hqk", query.double(), prefix[0].double())
        logits, own = torch.cat((before, logits), 2), torch.cat((prefix[1].double(), own), 1)
    return torch.einsum("hqk,hks->qhs", logits.softmax(-1), own).flatten(1)


def test_single_queries_share_a_line_of_biases(native: Library) -> None:
    """They are placed as rows of one query, each with the end of the line that is as long as its keys."""
    offsets, keys, line = [40, 0, 43], [3, 30, 17], _draw(HEADS, 32)
    query, store = _draw(3, HEADS * SIZE), _draw(60, 2 * HEADS * SIZE)
    for biases, shared in (([None] * 3, None), ([line[:, None, 32 - seen :] for seen in keys], line)):
        places = zip(range(3), [1] * 3, offsets, keys, biases, strict=True)
        found, expected = (
            inner_kernels.attend(
                native, query, store[:, : HEADS * SIZE], store[:, HEADS * SIZE :], SIZE, rows, HEADS, once=True
            )
            for rows in (
                PlacedRows.tokens(offsets, keys, shared),
                PlacedRows.place([PlacedRow(*one) for one in places]),
            )
        )
        assert torch.equal(found, expected)


@pytest.mark.parametrize("prefixed", [False, True])
@torch.inference_mode()
def test_rows_attend_to_their_own_keys(native: Library, prefixed: bool) -> None:
    """In any place of the keys, with a bias or none, which may hide keys, and with a gated prefix for some rows."""
    queries, sizes, places = [2, 1, 70], [3, 40, 17], [40, 0, 43]
    query, store = _draw(sum(queries), HEADS * SIZE), _draw(60, 2, HEADS, SIZE)
    bias = _draw(HEADS, 70, 40)
    bias[:, 1:, 2] = -torch.inf
    biases = [bias, None, bias]
    firsts = [0, 2, 3]
    rows = PlacedRows.place([PlacedRow(*place) for place in zip(firsts, queries, places, sizes, biases, strict=True)])
    prefix = _draw(2, HEADS, 5, SIZE)
    program = NativeProgram([place_prefix(0, prefix[0], prefix[1], None)], 1, {}, 0, None)
    table = Table([1] * 3, [TableGroup(1, program), TableGroup(2)])
    keys, values = store.flatten(2).unbind(1)
    found = inner_kernels.attend(
        native, query, keys, values, SIZE, rows, HEADS, PlacedPrefixes(table) if prefixed else None
    )
    for row, (first, count, place, size) in enumerate(zip(firsts, queries, places, sizes, strict=True)):
        own = biases[row]
        expected = _exact(
            query[first : first + count].view(count, HEADS, SIZE), store[place : place + size, 0],
            store[place : place + size, 1], None if own is None else own[:, :count, :size],
            prefix if prefixed and row == 0 else None,
        )  # fmt: skip
        torch.testing.assert_close(found[first : first + count].double(), expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("prefix_len", [0, 5, 700])
@pytest.mark.parametrize(("size", "bias"), [(511, False), (512, True), (513, True), (1_100, False), (1_100, True)])
@torch.inference_mode()
def test_rows_with_many_keys_attend_to_one_block_of_them_after_the_other(native, prefix_len, size, bias):
    """The keys of a row and its prefix begin and end anywhere in a block. The largest logit of a row may be in any
    block, and biases may hide all keys of one."""
    count = 99  # more than a block of queries
    query, store, line = 3 * _draw(count, HEADS * SIZE), _draw(size, 2, HEADS, SIZE), _draw(HEADS, count, size)
    line[:, ::2, :600], line[:, 1::2, 600:] = -torch.inf, -torch.inf
    rows = PlacedRows.place([PlacedRow(0, count, 0, size, line if bias else None)])
    prefix = _draw(2, HEADS, prefix_len, SIZE)
    program = NativeProgram([place_prefix(0, prefix[0], prefix[1], None)], 1, {}, 0, None)
    prefixes = PlacedPrefixes(Table([1], [TableGroup(1, program)])) if prefix_len else None
    if bias and size <= 600 and not prefix_len:
        line[:, ::2, 0] = 0.0  # every query sees a key
    found = inner_kernels.attend(native, query, *store.flatten(2).unbind(1), SIZE, rows, HEADS, prefixes)
    expected = _exact(query.view(count, HEADS, SIZE), store[:, 0], store[:, 1], line if bias else None, prefix)
    torch.testing.assert_close(found.double(), expected, atol=2e-5, rtol=1e-5)
    once = PlacedRows.place([PlacedRow(0, 1, 0, size, line if bias else None)])
    single = inner_kernels.attend(
        native, query[:1], *store.flatten(2).unbind(1), SIZE, once, HEADS, prefixes, once=True
    )
    torch.testing.assert_close(single.double(), expected[:1], atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("window", [None, 30])
@pytest.mark.parametrize("prefix_len", [0, 5, 600])
@pytest.mark.parametrize("kinds", ["queries", "keys", "queries and keys"])
@torch.inference_mode()
def test_scores_add_products_with_distances(native: Library, kinds: str, prefix_len: int, window: int | None) -> None:
    """Of each token's query with the key of the distance, and of each token's key with its query, in any block of
    queries and of keys and within a window. A prefix has no distances."""
    lengths = [1, 40, 98, 530]
    width, scale, (query, key, value) = max(lengths), 0.5, _draw(3, sum(lengths), HEADS * SIZE)
    tables = {name: _draw(HEADS, SIZE, 2 * width - 1) if name in kinds else None for name in ("queries", "keys")}
    prefix = _draw(2, HEADS, prefix_len, SIZE)
    program = NativeProgram([place_prefix(0, prefix[0], prefix[1], None)], 1, {}, 0, None)
    prefixes = PlacedPrefixes(Table([1] * 4, [TableGroup(4, program)])) if prefix_len else None
    found = inner_kernels.attend(
        native, query, key, value, SIZE, PlacedRows.packed(lengths, lengths), HEADS, prefixes, scale=scale,
        window=window, distances=PlacedDistances(**tables),
    )  # fmt: skip
    for row, q, k, v in zip(*(x.split(lengths) for x in (found, query, key, value)), strict=True):
        own = [x.view(len(x), HEADS, SIZE).transpose(0, 1).double() for x in (q, k, v)]
        away = torch.arange(len(q)) - torch.arange(len(q))[:, None]  # key - query
        scores = own[0] @ own[1].mT
        if tables["keys"] is not None:
            scores += (own[0] @ tables["keys"].double()).gather(2, (width - 1 + away).expand(HEADS, -1, -1))
        if tables["queries"] is not None:
            scores += (own[1] @ tables["queries"].double()).gather(2, (width - 1 + away).expand(HEADS, -1, -1)).mT
        if window is not None:
            scores[:, away.abs() > window] = -torch.inf
        scores = torch.cat((own[0] @ prefix[0].double().mT, scores), 2) * scale
        exact = torch.softmax(scores, -1) @ torch.cat((prefix[1].double(), own[2]), 1)
        torch.testing.assert_close(row.double(), exact.transpose(0, 1).flatten(1), atol=2e-5, rtol=1e-5)


@torch.inference_mode()
def test_a_single_query_reads_its_keys_in_place(native: Library) -> None:
    """As rows of any number of queries do, with a bias, a prefix and neither."""
    query, store, bias = _draw(3, HEADS * SIZE), _draw(40, 2, HEADS, SIZE), _draw(HEADS, 1, 40)
    keys, values = store.flatten(2).unbind(1)
    rows = PlacedRows.place([PlacedRow(0, 1, 2, 19, bias), PlacedRow(1, 1, 0, 40), PlacedRow(2, 1, 39, 1, bias)])
    prefix = _draw(2, HEADS, 5, SIZE)
    program = NativeProgram(
        [place_prefix(0, prefix[0], prefix[1], NativeGate(vector(bias), vector(bias), 1, 0))], 1, {}, 0, None
    )
    table = Table([1] * 3, [TableGroup(2, program), TableGroup(1)])
    prefixes = PlacedPrefixes(table, gates=torch.tensor([0.5, 0.25, 1.0]))
    found, expected = (
        inner_kernels.attend(native, query, keys, values, SIZE, rows, HEADS, prefixes, once=once)
        for once in (True, False)
    )
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@torch.inference_mode()
def test_queries_attend_as_one_row_or_as_many(native: Library) -> None:
    """A decoder's tokens may share a row or have rows of their own: the same bits."""
    query, store, bias = _draw(9, HEADS * SIZE), _draw(13, 2, HEADS, SIZE), _draw(HEADS, 9, 13)
    keys, values = store.flatten(2).unbind(1)
    together = PlacedRows.place([PlacedRow(0, 9, 0, 13, bias)])
    apart = PlacedRows.place([PlacedRow(row, 1, 0, 13, bias[:, row:]) for row in range(9)])
    found = [inner_kernels.attend(native, query, keys, values, SIZE, rows, HEADS) for rows in (together, apart)]
    assert torch.equal(*found)


@torch.inference_mode()
def test_rows_read_a_line_of_biases_from_any_head_on(native: Library) -> None:
    """As they read the square of the same biases, whole or query by query: the same bits. With biases of several
    blocks, each block reads those of its heads."""
    query, store = _draw(9, HEADS * SIZE), _draw(9, 2, HEADS, SIZE)
    keys, values = store.flatten(2).unbind(1)
    bias = RowBias(create_bias(_draw(32, 2 * HEADS), HEADS, 128, bidirectional=True), 9)
    for layer, first in enumerate((0, HEADS)):
        assert bias.relative.first_head(layer) == first
        line = PlacedRow(0, 9, 0, 9, LineBias(bias.relative.line_around(9)[first : first + HEADS]))
        expected = PlacedRows.place([PlacedRow(0, 9, 0, 9, bias.square[first : first + HEADS].contiguous())])
        for rows in (PlacedRows.place([line]), PlacedRows.place(line.tokens())):
            found = inner_kernels.attend(native, query, keys, values, SIZE, rows, HEADS)
            assert torch.equal(found, inner_kernels.attend(native, query, keys, values, SIZE, expected, HEADS))
