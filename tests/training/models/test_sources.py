"""Where served tensors come from while they are trained."""

import pytest
import torch
from peltier_adapters.presets.presets import find_preset
from peltier_adapters.spec.parts import tensor_shapes
from peltier_backbone.backbone import Backbone
from peltier_training.models.sources import Experts, PrefixMlp, Stream, consistency_loss, create_sources
from torch import Tensor, nn


def create(backbone: Backbone, preset: str, **overrides: str) -> nn.ModuleList:
    """Fresh sources of a preset."""
    settings = find_preset(preset).settings(overrides, backbone.config)
    parts = find_preset(preset).compose(settings, backbone.config, outputs=3)
    torch.manual_seed(0)
    return create_sources(backbone, parts, settings, seed=0)


def served(sources: nn.ModuleList) -> dict[str, Tensor]:
    """What all of them give together."""
    return {name: tensor for source in sources for name, tensor in source().items()}


@pytest.fixture(params=["bert", "t5"])
def backbone(request: pytest.FixtureRequest) -> Backbone:
    return request.getfixturevalue(request.param)  # type: ignore[no-any-return]


@pytest.mark.parametrize(("width", "first_block"), [("16", "0"), ("16", "1"), ("16", "2"), ("0", "1")])
def test_prefixes_are_served_without_their_mlp(backbone: Backbone, width: str, first_block: str):
    """Only the MLPs' output has a place in the artifact; with `mlp=0` the prefixes are parameters of their own. This
    T5's decoder has no block 2, so from there on its groups have no prefixes and no MLPs."""
    sources = create(backbone, "prefix", mlp=width, first_block=first_block)
    preset = find_preset("prefix")
    settings = preset.settings({"first_block": first_block}, backbone.config)
    parts = preset.compose(settings, backbone.config, outputs=3)
    assert any(isinstance(source, PrefixMlp) for source in sources) == (width != "0")
    assert {name: tuple(t.shape) for name, t in served(sources).items()} == tensor_shapes(parts, backbone.config)


def test_a_prefix_mlp_lays_its_output_out_by_layer(bert: Backbone):
    """Layer i's keys are block 2i of each position's output and its values block 2i + 1 (docs/methods/prefix.md)."""
    (mlp,) = [source for source in create(bert, "prefix", mlp="16", length="5") if isinstance(source, PrefixMlp)]
    (group,) = mlp.groups
    flat, given = group.mlp(group.embedding), mlp()
    hidden = bert.config.hidden_size
    for layer in range(bert.config.num_layers):
        keys, values = (flat[:, (2 * layer + k) * hidden : (2 * layer + k + 1) * hidden] for k in (0, 1))
        assert torch.equal(given["prefix.keys"][layer], keys)
        assert torch.equal(given["prefix.values"][layer], values)


def test_t5_prefixes_are_three_groups(t5: Backbone):
    """Encoder, decoder and cross-attention have an embedding and an MLP of their own, in the order of attentions."""
    (mlp,) = [source for source in create(t5, "prefix", mlp="16", length="5") if isinstance(source, PrefixMlp)]
    config = t5.config
    size = 5 * 48 + 48 * 16 + 16  # the embedding and the first layer of one group
    last = sum((16 + 1) * 2 * num * config.attention_size for num in (3, 2, 2))
    assert sum(parameter.numel() for parameter in mlp.parameters()) == 3 * size + last
    before = mlp()["prefix.keys"]
    with torch.no_grad():
        mlp.groups[1].embedding.add_(1.0)
    moved = (mlp()["prefix.keys"] != before).flatten(1).any(1)
    assert moved.tolist() == [False] * 3 + [True] * 2 + [False] * 2


@pytest.mark.parametrize(("share", "shared", "copied"), [("up", "up", 1), ("down", "down", 1), ("none", None, 2)])
def test_adamix_counts(backbone: Backbone, share: str, shared: str | None, copied: int):
    """B (M (Hd + d) + Hd + H) parameters with a shared up-projection, and so on (docs/methods.md#counts), over all
    blocks of both stacks."""
    sources = create(backbone, "adamix", share=share, bottleneck="8", experts="4")
    hidden, blocks, size = backbone.config.hidden_size, backbone.config.num_blocks, 8
    down, up = hidden * size + size, hidden * size + hidden
    wanted = blocks * ((1 if shared == "down" else 4) * down + (1 if shared == "up" else 4) * up)
    head = sum(tensor.numel() for name, tensor in served(sources).items() if name.startswith("head"))
    assert sum(parameter.numel() for parameter in sources.parameters()) - head == wanted
    assert sum(isinstance(source, Experts) for source in sources) == copied


def test_experts_begin_apart(backbone: Backbone):
    """Each copy is drawn for itself, not copied from the first."""
    named = create(backbone, "adamix").named_parameters()
    (weight,) = [p for name, p in named if name.endswith("bottleneck/down/weight")]
    assert weight.shape[0] == 4
    assert all((weight[one] - weight[0]).abs().max() > 0.01 for one in (1, 2, 3))


# Preset and overrides, the end of its parameters' names, and the standard deviation of docs/methods.md#initialisation
# by family.
DRAWN = [
    ("prefix", {}, "embedding", {"bert": 0.02, "t5": 0.02}),
    ("prefix", {}, "mlp.0.weight", {"bert": 0.02, "t5": 0.02}),
    ("prefix", {}, "mlp.2.weight", {"bert": 0.02, "t5": 0.02}),
    ("adamix", {"bottleneck": "24"}, "down/weight", {"bert": 0.02, "t5": 0.01}),
    ("adamix", {"bottleneck": "24", "share": "none"}, "up/weight", {"bert": 0.02, "t5": 0.01}),
]


@pytest.mark.parametrize(("preset", "overrides", "name", "stds"), DRAWN, ids=str)
def test_normal_draws_of_what_is_trained(backbone, preset, overrides, name, stds):
    """Mean 0 and the published deviation, each to five standard errors, in each of T5's three groups of prefixes and
    each of AdaMix's experts."""
    std = stds[backbone.config.family]
    found = [p.detach() for own, p in create(backbone, preset, **overrides).named_parameters() if own.endswith(name)]
    draws = [copy for tensor in found for copy in tensor] if preset == "adamix" else found
    assert len(draws) == (4 if preset == "adamix" else 3 if backbone.config.generates else 1)
    for values in draws:
        error = values.numel() ** -0.5
        assert abs(float(values.mean())) < 5 * std * error
        assert abs(float(values.std()) / std - 1) < 5 * error


def test_a_prefix_mlp_starts_without_biases(backbone: Backbone):
    """Both layers' biases are zero at first (docs/methods.md#initialisation)."""
    biases = [p for name, p in create(backbone, "prefix").named_parameters() if "mlp" in name and "bias" in name]
    assert len(biases) == (6 if backbone.config.generates else 2)
    assert not any(bias.any() for bias in biases)


def test_prompts_start_at_random_or_from_the_vocabulary(t5: Backbone):
    """PROMPT-R is uniform in (-0.5, 0.5), PROMPT-T the first embeddings of the checkpoint (docs/methods/prompt.md)."""
    drawn = served(create(t5, "prompt-r", length="40"))["prompt.weight"]
    assert 0.45 < drawn.abs().max() <= 0.5
    copied = served(create(t5, "prompt-t", length="7"))["prompt.weight"]
    assert torch.equal(copied, t5.t5.embedding.weight()[:7])
    assert copied.data_ptr() != t5.t5.embedding.weight().data_ptr()


@pytest.mark.parametrize(("share", "copied"), [("up", 1), ("down", 1), ("none", 2)])
def test_adamix_counts_with_lora(backbone: Backbone, share: str, copied: int):
    """K A (M H r + r W) parameters with a shared up-projection (docs/methods/adamix.md), of which K A (H + W) r are
    served."""
    sources = create(backbone, "adamix-lora", share=share, rank="2", experts="4")
    config = backbone.config
    down, up = (2 * config.num_attentions * 2 * width for width in (config.hidden_size, config.attention_size))
    given = {name: tensor.numel() for name, tensor in served(sources).items() if name.startswith("lora")}
    assert given == {"lora.down": down, "lora.up": up}
    head = sum(tensor.numel() for name, tensor in served(sources).items() if name.startswith("head"))
    wanted = (1 if share == "down" else 4) * down + (1 if share == "up" else 4) * up
    assert sum(parameter.numel() for parameter in sources.parameters()) - head == wanted
    assert sum(isinstance(source, Experts) for source in sources) == copied


def test_lora_experts_of_maps_of_other_shapes(backbone: Backbone):
    """Each of LoRA's tensors has copies of its own, and so a route for each block of its own maps."""
    sources = create(backbone, "adamix-lora", targets="query,intermediate", rank="2", experts="4").train()
    experts = [source for source in sources if isinstance(source, Experts)]
    names = [[*source()] for source in experts]
    assert names == [["lora.down"], ["lora.down.intermediate"]]
    assert [source()[name].shape[1] for source, (name,) in zip(experts, names, strict=True)] == [
        backbone.config.num_attentions, backbone.config.num_blocks,
    ]  # fmt: skip


def test_lora_experts_begin_as_one(backbone: Backbone):
    """Copies of LoRA are equal at first and part by their routes, as in the paper's code (docs/methods/adamix.md)."""
    named = create(backbone, "adamix-lora").named_parameters()
    (down,) = [p for name, p in named if name.endswith("lora/down")]
    assert torch.equal(down, down[:1].expand_as(down))
    assert down.std() > 0


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
    drawn = []
    for seed in (3, 3, 4):
        torch.manual_seed(seed)
        drawn.append(torch.stack([routes(numbered_experts()) for _ in range(5)]))
    assert torch.equal(drawn[0], drawn[1])
    assert not torch.equal(drawn[0], drawn[2])


def test_evaluation_uses_the_mean():
    experts = numbered_experts().eval()
    assert torch.equal(routes(experts), torch.full((SITES, LAYERS), 1.5))
    assert torch.equal(routes(experts), routes(experts))


def test_only_the_drawn_copy_learns():
    """In one pass each place sends its gradient to one copy and none to the others."""
    experts = numbered_experts()
    experts()["bottleneck.down.bias"].sum().backward()
    (gradient,) = [p.grad for name, p in experts.named_parameters() if name.endswith("bias")]
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


def test_independent_labels_are_two_way_distributions():
    """A multilabel logit z is a softmax over (z, 0), so each label gives what such a classification would."""
    first, second = torch.randn(4, 3), torch.randn(4, 3)
    pairs = [torch.stack((x, torch.zeros_like(x)), -1) for x in (first, second)]
    labels = [consistency_loss(pairs[0][:, label], pairs[1][:, label]) for label in range(3)]
    torch.testing.assert_close(consistency_loss(first, second, multilabel=True), torch.stack(labels).sum())


@pytest.mark.parametrize("rate", [0.1, 0.5])
def test_dropout_keeps_the_mean(rate: float):
    """The share of zeros is the rate, to five standard errors; the rest is scaled by the inverse of what is kept."""
    ones = torch.ones(1000, 1000)
    for dropped in (Stream(0).drop(ones, rate), ones * Stream(0)._device_mask(ones, rate)):
        most = 5 * (rate * (1 - rate) / ones.numel()) ** 0.5
        assert (dropped == 0).float().mean().item() == pytest.approx(rate, abs=most)
        assert dropped.max().item() == pytest.approx(1 / (1 - rate), rel=1e-4)
        assert dropped.mean().item() == pytest.approx(1, abs=most / (1 - rate))


def test_a_key_decides_the_numbers():
    """Seed, step, pass and process each give other numbers; torch's generator gives those without a key."""
    ones, keys = torch.ones(64), ((0, 1, 0), (0, 1, 0), (1, 1, 0), (0, 2, 0), (0, 1, 1))
    for draw in (Stream.drop, Stream._device_mask):
        first, same, *others = [draw(Stream(*key), ones, 0.5) for key in keys]
        assert torch.equal(first, same)
        assert all(not torch.equal(first, other) for other in others)
    torch.manual_seed(3)
    first, second = Stream().routes(1000, (8,)), Stream().routes(1000, (8,))
    torch.manual_seed(3)
    assert torch.equal(first, Stream().routes(1000, (8,)))
    assert not torch.equal(first, second)
