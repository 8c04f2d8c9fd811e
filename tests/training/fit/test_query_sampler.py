"""The order of a ranking's rows."""

from itertools import groupby

from hypothesis import given
from hypothesis import strategies as st
from peltier_training.fit.query_sampler import QuerySampler


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
