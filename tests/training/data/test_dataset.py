"""Rows as the Trainer draws them."""

from itertools import groupby

import torch
from hypothesis import given
from hypothesis import strategies as st
from peltier_backbone.text.packing import Encoded
from peltier_training.data.dataset import EncodedRows, QuerySampler, TextRow, collate, collate_texts


def test_rows_stay_ragged():
    """Collating pads nothing and keeps each row by its target."""
    rows = [Encoded((1, 2), (0, 0)), Encoded((1, 3, 2), (0, 0, 0))]
    data = EncodedRows(rows, torch.tensor([4, 5]))
    batch = collate([data[1], data[0]])
    assert len(data) == 2
    assert batch["rows"] == [rows[1], rows[0]]
    assert batch["labels"].tolist() == [5, 4]


def test_texts_stay_ragged():
    """The tokens to say lie back to back, as the decoder will answer; inputs and decoder inputs stay apart."""
    one = TextRow(Encoded((1, 2), (0, 0)), (0, 7), (7, 1))
    two = TextRow(Encoded((3, 2), (0, 0)), (0, 8, 9), (8, 9, 1))
    batch = collate_texts([two, one])
    assert batch["rows"] == [two.encoded, one.encoded]
    assert batch["targets"] == [(0, 8, 9), (0, 7)]
    assert batch["labels"].tolist() == [8, 9, 1, 7, 1]


@given(queries=st.lists(st.integers(0, 5), max_size=30), seed=st.integers(0, 99), epoch=st.integers(0, 9))
def test_documents_of_a_query_are_neighbours(queries: list[int], seed: int, epoch: int):
    """Every row comes once, and every query in one run; the same seed and epoch give the same order."""
    sampler = QuerySampler(queries, seed)
    sampler.set_epoch(epoch)
    order = list(sampler)
    assert sorted(order) == list(range(len(queries))) == list(range(len(sampler)))
    runs = [query for query, _ in groupby(order, key=lambda row: queries[row])]
    assert len(runs) == len(set(queries))
    assert list(sampler) == order


def test_epochs_have_other_orders():
    """Of queries and of the documents of one."""
    queries = [number // 8 for number in range(64)]
    sampler = QuerySampler(queries, seed=0)
    first = list(sampler)
    sampler.set_epoch(1)
    assert list(sampler) != first
