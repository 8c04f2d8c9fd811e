"""What computes the batches of a backbone."""

import pytest
from peltier_adapters.batch.choice import choose_runner
from peltier_adapters.batch.packed_batch import NativeBatch, TorchBatch
from peltier_backbone.backbone import Backbone

from tests.support.levels import fastest_level, forced_level, reloaded

FAMILIES = ("bert", "bert_int8", "modernbert", "t5")


@pytest.mark.parametrize("name", FAMILIES)
def test_the_kernels_that_hold_the_maps_compute_all_layers(name: str, request: pytest.FixtureRequest):
    """At a level of the native kernels."""
    with forced_level(fastest_level()):
        assert type(choose_runner(reloaded(request.getfixturevalue(name)))) is NativeBatch


@pytest.mark.parametrize("name", FAMILIES)
def test_torch_computes_where_it_holds_the_maps(name: str, request: pytest.FixtureRequest):
    """Also if native kernels could be used by now."""
    with forced_level("torch"):
        backbone: Backbone = reloaded(request.getfixturevalue(name))
        assert type(choose_runner(backbone)) is TorchBatch
    with forced_level(fastest_level()):
        assert type(choose_runner(backbone)) is TorchBatch
