"""Adapters that differ by one rounding."""

from collections.abc import Callable
from pathlib import Path

import torch
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.golden.twins import create_twin, num_twins
from peltier_backbone.backbone import Backbone
from peltier_backbone.load import load_backbone


def test_every_weight_of_a_twin_is_moved_by_one_rounding(bert: Backbone, make_artifact: Callable[..., bytes]):
    """Up or down by a 256th of itself, about as often; a weight of zero stays."""
    artifact = read_artifact(make_artifact(bert, "compacter"), bert)
    artifact.tensors["head.bias"].zero_()
    twin = create_twin(bert, artifact, 0)
    assert not twin.tensors["head.bias"].any()
    for name, tensor in artifact.tensors.items():
        moved = (twin.tensors[name] - tensor)[tensor != 0] / tensor[tensor != 0]
        torch.testing.assert_close(moved.abs(), torch.full_like(moved, 2**-8), atol=1e-5, rtol=0)
    weights = artifact.tensors["bottleneck.down.left"]
    assert 0.4 < (twin.tensors["bottleneck.down.left"] > weights).float().mean() < 0.6


def test_twins_are_always_the_same_and_differ_from_each_other(bert: Backbone, make_artifact: Callable[..., bytes]):
    """So every server judges alike; nor is a twin taken for its adapter."""
    artifact = read_artifact(make_artifact(bert), bert)
    first, again, other = (create_twin(bert, artifact, number) for number in (0, 0, 1))
    assert all(torch.equal(tensor, again.tensors[name]) for name, tensor in first.tensors.items())
    assert not any(torch.equal(tensor, other.tensors[name]) for name, tensor in first.tensors.items())
    assert first.digest == again.digest
    assert len({artifact.digest, first.digest, other.digest}) == 3


def test_servers_that_round_run_four_twins(bert: Backbone, bert_int8: Backbone, bert_directory: Path):
    """In float32 there is nothing to measure."""
    half = load_backbone(str(bert_directory), dtype="bfloat16")
    assert [num_twins(backbone) for backbone in (bert, half, bert_int8)] == [0, 4, 4]
