"""Index tensors that are copied to a device."""

import pytest
import torch
from peltier_adapters.batch.indices import Indices

CPU = torch.device("cpu")


def test_vectors_are_filled_where_they_lie():
    """The last number fills the rest of the vector, and no vector moves."""
    indices = Indices({"starts": 4, "groups": 2}, CPU)
    starts = indices["starts"]
    indices.fill({"starts": [0, 3, 5, 9], "groups": [1, 2]})
    indices.fill({"starts": [0, 7], "groups": [4]})
    assert starts.tolist() == [0, 7, 7, 7]
    assert indices["groups"].tolist() == [4, 4]
    assert (starts.dtype, starts.data_ptr()) == (torch.int64, indices["starts"].data_ptr())


@pytest.mark.parametrize("values", [{"starts": [1]}, {"starts": [1], "groups": [1, 2, 3]}], ids=["missing", "long"])
def test_nothing_is_left_out_or_cut(values: dict[str, list[int]]):
    """It would be another batch's."""
    with pytest.raises(AssertionError):
        Indices({"starts": 4, "groups": 2}, CPU).fill(values)


def test_vectors_take_the_lengths_of_their_values():
    """Of lists and of tensors, also if they are empty."""
    indices = Indices.of({"starts": [0, 3], "prompts": [], "nodes": torch.arange(3)}, CPU)
    assert [indices[name].tolist() for name in ("starts", "prompts", "nodes")] == [[0, 3], [], [0, 1, 2]]
