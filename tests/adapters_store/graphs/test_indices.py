"""Whole numbers on their way to a graph."""

from itertools import accumulate

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from peltier_adapters.graphs.indices import Indices, place_of

CPU = torch.device("cpu")


def test_vectors_are_filled_where_they_lie():
    """The last number goes on to the end, whatever stood there before, and no vector moves."""
    indices = Indices({"starts": 4, "groups": 2}, CPU)
    starts = indices["starts"]
    indices.fill({"starts": [0, 3, 5, 9], "groups": [1, 2]})
    indices.fill({"starts": [0, 7], "groups": [4]})
    assert starts.tolist() == [0, 7, 7, 7]
    assert indices["groups"].tolist() == [4, 4]
    assert (starts.dtype, starts.data_ptr()) == (torch.int32, indices["starts"].data_ptr())


@pytest.mark.parametrize("values", [{"starts": [1]}, {"starts": [1], "groups": [1, 2, 3]}], ids=["missing", "long"])
def test_nothing_is_left_out_or_cut(values: dict[str, list[int]]):
    """It would be another batch's."""
    with pytest.raises(AssertionError):
        Indices({"starts": 4, "groups": 2}, CPU).fill(values)


@given(first=st.integers(0, 5), lengths=st.lists(st.integers(0, 4), min_size=1, max_size=6), behind=st.integers(0, 5))
def test_each_token_finds_its_run(first: int, lengths: list[int], behind: int):
    """Also beside empty runs; -1 before the first, and as many as there are behind the last."""
    starts = list(accumulate(lengths, initial=first))
    expected = [-1] * first + [run for run, length in enumerate(lengths) for _ in range(length)]
    expected += [len(lengths)] * behind
    tokens = torch.arange(len(expected), dtype=torch.int32)
    assert place_of(torch.tensor(starts, dtype=torch.int32), tokens).tolist() == expected
