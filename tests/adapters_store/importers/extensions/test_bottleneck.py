from pathlib import Path

import pytest
import torch
from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.extensions.bottleneck import take_maps, take_rule
from peltier_adapters.importers.shared.checkpoint import Checkpoint


def _checkpoint(**changed: torch.Tensor) -> Checkpoint:
    """A dense bottleneck of 4 between 6 values, with some tensors `changed`."""
    tensors = {
        "down.weight": torch.ones(4, 6),
        "down.bias": torch.ones(4),
        "up.weight": torch.ones(6, 4),
        "up.bias": torch.ones(6),
    }
    renamed = {name.replace("_", "."): tensor for name, tensor in changed.items()}
    return Checkpoint(tensors | renamed, Path("here"))


def test_maps_are_read_as_products_from_the_right() -> None:
    down, up = take_maps(_checkpoint(), "down", "up", 6)
    assert (down["weight"].shape, up["weight"].shape) == ((6, 4), (4, 6))


@pytest.mark.parametrize(
    ("name", "tensor", "sentence"),
    [
        ("down_weight", torch.ones(4, 5), r"'down.weight' has shape \[4, 5\]; on this backbone it must be \[any, 6\]"),
        ("up_weight", torch.ones(7, 4), r"it must be \[6, 4\]"),
        ("up_weight", torch.ones(6, 3), r"it must be \[6, 4\]"),
        ("up_bias", torch.ones(5), r"it must be \[6\]"),
    ],
)
def test_sizes_that_do_not_fit_are_refused(name: str, tensor: torch.Tensor, sentence: str) -> None:
    """The outer sizes must be the backbone's width, and the inner sizes must be equal."""
    with pytest.raises(AdapterError, match=sentence):
        take_maps(_checkpoint(**{name: tensor}), "down", "up", 6)


def test_a_rule_is_a_cube() -> None:
    with pytest.raises(AdapterError, match=r"has shape \[4, 4, 2\]; a rule is \[n, n, n\]"):
        take_rule(Checkpoint({"rule": torch.ones(4, 4, 2)}, Path("here")), "rule")
