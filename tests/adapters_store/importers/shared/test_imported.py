import pytest
import torch
from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.shared.imported import grown, stacked


def test_what_is_smaller_gets_zeros_behind_it() -> None:
    """Places without a tensor are zeros too."""
    whole = stacked({(1,): torch.ones(2, 1)}, (2,), (3, 2))
    assert whole.tolist() == [[[0, 0], [0, 0], [0, 0]], [[1, 0], [1, 0], [0, 0]]]


def test_what_is_larger_is_refused() -> None:
    """No dimension is cut."""
    with pytest.raises(AdapterError, match=r"of shape \[2, 5\] does not fit into \[3, 4\]"):
        grown(torch.ones(2, 5), 3, 4)
