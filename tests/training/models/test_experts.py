"""AdaMix: routing, merging, and the consistency of two passes."""

import pytest
import torch
from peltier_training.models.sources import Experts, consistency_loss
from peltier_training.models.stream import Stream

M, SITES, LAYERS = 4, 2, 3


def numbered_experts() -> Experts:
    """Copies whose every value is the copy's number."""
    numbers = torch.arange(float(M)).view(M, 1, 1, 1)
    weight, bias = numbers[..., None].expand(M, SITES, LAYERS, 5, 2), numbers.expand(M, SITES, LAYERS, 2)
    return Experts({"bottleneck.down.weight": weight.clone(), "bottleneck.down.bias": bias.clone()})


def routes(experts: Experts) -> torch.Tensor:
    """The copy that each site and layer got in one pass, [SITES, LAYERS]."""
    tensors = experts()
    weight, bias = tensors["bottleneck.down.weight"], tensors["bottleneck.down.bias"]
    assert weight.shape == (SITES, LAYERS, 5, 2)
    route = bias[:, :, 0]
    assert torch.equal(weight, route[:, :, None, None].expand_as(weight))
    assert torch.equal(bias, route[:, :, None].expand_as(bias))
    return route


def test_a_copy_is_drawn_whole():
    """Weight and bias of a site and layer come from the same copy (checked in `routes`), which is one of the M."""
    torch.manual_seed(0)
    drawn = torch.stack([routes(numbered_experts()) for _ in range(50)])
    assert set(drawn.unique().tolist()) == {0.0, 1.0, 2.0, 3.0}


def test_routes_are_independent_and_uniform():
    """Over 2,000 passes each place gets each copy a quarter of the time, and no two places move together."""
    torch.manual_seed(0)
    experts = numbered_experts()
    drawn = torch.stack([routes(experts) for _ in range(2000)]).flatten(1)  # [passes, places]
    shares = torch.stack([(drawn == copy).float().mean(0) for copy in range(M)])
    assert (shares - 1 / M).abs().max() < 0.04
    agreement = (drawn[:, :, None] == drawn[:, None, :]).float().mean(0)
    assert (agreement - torch.eye(SITES * LAYERS) - (1 - torch.eye(SITES * LAYERS)) / M).abs().max() < 0.05


def test_samples_draw_for_themselves():
    """`draw` gives each sample routes of its own, whole copies as one draw does, and no two samples move together."""
    torch.manual_seed(0)
    drawn = numbered_experts().draw(500, Stream(0))
    route = drawn["bottleneck.down.bias"][..., 0]
    assert route.shape == (500, SITES, LAYERS)
    assert torch.equal(drawn["bottleneck.down.weight"], route[..., None, None].expand(-1, -1, -1, 5, 2))
    shares = torch.stack([(route == copy).float().mean(0) for copy in range(M)])
    assert (shares - 1 / M).abs().max() < 5 * (0.25 * 0.75 / 500) ** 0.5
    agreement = (route[1:] == route[:-1]).float().mean()
    assert agreement == pytest.approx(1 / M, abs=0.05)


def test_two_projections_draw_for_themselves():
    """With nothing shared, down's copy says nothing about up's."""
    torch.manual_seed(0)
    down, up = numbered_experts(), numbered_experts()
    agreement = torch.stack([routes(down) == routes(up) for _ in range(500)]).float().mean()
    assert agreement == pytest.approx(1 / M, abs=0.05)


def test_the_seed_decides_the_routes():
    """The same seed gives the same routes."""
    drawn = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        drawn.append(torch.stack([routes(numbered_experts()) for _ in range(5)]))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_evaluation_uses_the_mean():
    """In evaluation every place is the mean of the copies, and stays so."""
    experts = numbered_experts().eval()
    assert torch.equal(routes(experts), torch.full((SITES, LAYERS), 1.5))
    assert torch.equal(routes(experts), routes(experts))


def test_only_the_drawn_copy_learns():
    """In one pass each place sends its gradient to one copy and none to the others."""
    experts = numbered_experts()
    experts()["bottleneck.down.bias"].sum().backward()
    (gradient,) = [p.grad for name, p in experts.named_parameters() if name.endswith("bias")]
    assert gradient is not None
    assert torch.equal(gradient[..., 0].sum(0), torch.ones(SITES, LAYERS))
    assert set(gradient.unique().tolist()) == {0.0, 1.0}


def test_consistency_is_the_worked_example():
    """docs/methods/adamix.md#eq-consistency by hand: the loss and both gradients."""
    first = torch.tensor([[1.0, 0.0, -1.0], [0.5, 0.5, 2.0]], requires_grad=True)
    second = torch.tensor([[0.0, 1.0, -1.0], [0.5, 0.5, 1.0]], requires_grad=True)
    loss = consistency_loss(first, second)
    loss.backward()
    assert loss.item() == pytest.approx(0.2701502, abs=1e-6)
    expected = torch.tensor([[0.105128, -0.105128, 0.0], [-0.029947, -0.029947, 0.059894]])
    torch.testing.assert_close(first.grad, expected, atol=1e-6, rtol=0)
    torch.testing.assert_close(second.grad, -expected, atol=1e-6, rtol=0)


def test_consistency_of_equal_passes_is_zero():
    """With no gradient: nothing pulls where both agree."""
    logits = torch.randn(4, 3, requires_grad=True)
    loss = consistency_loss(logits, logits.detach().clone())
    loss.backward()
    assert loss.item() == pytest.approx(0.0, abs=1e-7)
    assert logits.grad is not None
    assert logits.grad.abs().max() < 1e-6


def test_independent_labels_are_two_way_distributions():
    """A multilabel logit z is a softmax over (z, 0), so each label gives what such a classification would."""
    first, second = torch.randn(4, 3), torch.randn(4, 3)
    pairs = [torch.stack((x, torch.zeros_like(x)), -1) for x in (first, second)]
    labels = [consistency_loss(pairs[0][:, label], pairs[1][:, label]) for label in range(3)]
    torch.testing.assert_close(consistency_loss(first, second, multilabel=True), torch.stack(labels).sum())
