"""Programs and their places."""

import pytest
from peltier_adapters.ops.op import Program, common_depth


def test_programs_of_a_batch_have_one_depth():
    """By the places of another depth a row would read the ops of another site."""
    assert (common_depth([]), common_depth([Program([], 2), Program([], 2)])) == (0, 2)
    with pytest.raises(ValueError, match=r"^programs of one batch have depths 2 and 3; they must have one$"):
        common_depth([Program([], 3), Program([], 2)])
