"""Adapters that are single routes through AdaMix's experts, against the parameters that they come from."""

import pytest
import torch
from peltier_adapters.presets.presets import find_preset
from peltier_backbone.backbone import Backbone
from peltier_training.models.expert_routing import fixed_routes, random_routes
from peltier_training.models.model import HeadedAdapter

EXPERTS = 3
BIAS = "bottleneck.down.bias"  # [S, L, bottleneck]


def create_mixture(backbone: Backbone, share: str) -> HeadedAdapter:
    overrides = {"experts": str(EXPERTS), "share": share, "bottleneck": "8"}
    settings = find_preset("adamix").settings(overrides, backbone.config)
    parts = find_preset("adamix").compose(settings, backbone.config, outputs=2)
    model = HeadedAdapter(backbone, parts, settings, seed=0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn(parameter.shape, generator=torch.Generator().manual_seed(0)))
    return model


def copies(model: HeadedAdapter, name: str) -> torch.Tensor:
    """The copies [M, …] of a tensor as a checkpoint holds them, or the one that is shared."""
    state = {key.split(".")[-1].replace("/", "."): tensor for key, tensor in model.state_dict().items()}
    return state[name]


@pytest.mark.parametrize(("share", "routed"), [("up", {"down"}), ("down", {"up"}), ("none", {"down", "up"})])
def test_a_fixed_route_is_one_copy_everywhere(bert: Backbone, share: str, routed: set[str]):
    """Every tensor of route 0 is the checkpoint's copy 0, or the shared one, and so on."""
    model = create_mixture(bert, share)
    found = fixed_routes(model)
    assert len(found) == EXPERTS
    for copy, tensors in enumerate(found):
        assert tensors.keys() == model.merged().keys()
        for name, tensor in tensors.items():
            own = copies(model, name)
            assert torch.equal(tensor, own[copy] if name.split(".")[1] in routed else own)


def test_merging_is_the_mean_of_the_fixed_routes(bert: Backbone):
    """Tensor by tensor (AdaMix section 2.3)."""
    model = create_mixture(bert, "none")
    found, merged = fixed_routes(model), model.merged()
    for name, tensor in merged.items():
        torch.testing.assert_close(tensor, torch.stack([route[name] for route in found]).mean(0))


def test_a_random_route_has_a_copy_a_layer(bert: Backbone):
    """Each layer's bias is one of the copies of that layer; over twenty routes each copy is met in each layer."""
    model = create_mixture(bert, "up")
    drawn = torch.stack([tensors[BIAS] for tensors in random_routes(model, 20, seed=0)])  # [routes, S, L, bottleneck]
    same = (drawn[:, None] == copies(model, BIAS)[None]).all(-1)  # [routes, M, S, L]
    assert bool((same.sum(1) == 1).all())
    assert bool(same.any(0).all())


def test_routes_leave_no_trace(bert: Backbone):
    """The same seed draws the same routes, training's own random numbers go on as if nothing was drawn, and the model
    is merged as before."""
    model = create_mixture(bert, "up")
    before, state = model.merged(), torch.get_rng_state()
    first, second = random_routes(model, 2, seed=5), random_routes(model, 2, seed=5)
    assert all(torch.equal(one[BIAS], other[BIAS]) for one, other in zip(first, second, strict=True))
    assert not torch.equal(first[0][BIAS], first[1][BIAS])
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(tensor, before[name]) for name, tensor in model.served().items())
