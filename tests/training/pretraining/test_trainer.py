"""How the optimizer is set."""

import torch
from peltier_training.pretraining.trainer import scaled_groups
from torch.nn import Parameter


def test_each_parameter_has_a_rate_of_its_size():
    """Relative to its root mean square; what begins at zero moves all the same."""
    parameters = [Parameter(torch.full((2, 3), -4.0)), Parameter(torch.tensor([3.0, 4.0])), Parameter(torch.zeros(5))]
    groups = scaled_groups(parameters, 0.02)
    assert [group["params"] for group in groups] == [[one] for one in parameters]
    rates = torch.tensor([group["lr"] for group in groups])
    torch.testing.assert_close(rates, torch.tensor([0.08, 0.02 * 12.5**0.5, 2e-5]))
