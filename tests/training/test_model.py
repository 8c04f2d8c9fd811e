"""The trainable form: it is what will be served, its gradients are right, and the backbone stays as it was."""

import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peltier_adapters.bank import Banks
from peltier_adapters.batch import Row, encode_input, forward
from peltier_adapters.manifest import TaskSpec
from peltier_adapters.presets import PRESETS, find_preset
from peltier_adapters.spec import tensor_shapes
from peltier_backbone.load import Backbone
from peltier_backbone.packing import Encoded
from peltier_training.errors import TrainingError
from peltier_training.experts import Experts
from peltier_training.export import Trained
from peltier_training.model import PrefixMlp, TrainableAdapter
from torch import Tensor

TEXTS = ["good", "a bad film", "the plot was not very good , and the actor is dull", "is a is a is a film"]
TASK = TaskSpec(type="classification", labels=("a", "b", "c"), inputs="single", max_length=64)
Reference = runpy.run_path(str(Path(__file__).parents[1] / "adapters_store" / "test_reference.py"))["Reference"]


def create_model(backbone: Backbone, preset: str, **overrides: str) -> TrainableAdapter:
    """A trainable adapter far from its initial values, so that every part matters."""
    settings = find_preset(preset).settings(
        {"mlp": "16", **overrides} if "mlp" in PRESETS[preset].defaults else overrides
    )
    parts = find_preset(preset).compose(settings, backbone.config, outputs=len(TASK.labels))
    torch.manual_seed(0)
    model = TrainableAdapter(backbone, parts, settings, dropout=0.1, seed=0)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def encode(backbone: Backbone) -> list[Encoded]:
    return [encode_input(backbone, TASK, text) for text in TEXTS]


@pytest.fixture(params=["bert", "roberta"])
def backbone(request: pytest.FixtureRequest) -> Backbone:
    return request.getfixturevalue(request.param)  # type: ignore[no-any-return]


@pytest.mark.parametrize("preset", PRESETS)
def test_training_is_serving(backbone: Backbone, preset: str):
    """The trainable form in evaluation, with gradients recorded, gives what a server gives for the exported tensors."""
    model = create_model(backbone, preset).eval()
    logits = model(backbone.pack(encode(backbone)))
    assert logits.requires_grad
    artifact = Trained("toy", preset, model.parts, model.merged(), TASK).unproved(backbone, TEXTS)
    resident = Banks(backbone).add(artifact)
    served = torch.stack([out.logits for out in forward(backbone, [Row(one, resident) for one in encode(backbone)])])
    torch.testing.assert_close(logits.detach(), served, atol=2e-6, rtol=1e-5)


@pytest.mark.parametrize("preset", PRESETS)
def test_exporting_changes_nothing(backbone: Backbone, preset: str):
    """With the same kernels, merged experts and evaluated prefixes give the very bits of the trainable form."""
    model = create_model(backbone, preset).eval()
    packed = backbone.pack(encode(backbone))
    with torch.inference_mode():
        before = model(packed)
        merged = model.merged()
        assert {name: tuple(t.shape) for name, t in merged.items()} == tensor_shapes(model.parts, backbone.config)
        model.served = lambda: merged  # type: ignore[method-assign]
        assert torch.equal(model(packed), before)


@pytest.mark.parametrize("preset", PRESETS)
def test_gradients_reach_every_parameter(backbone: Backbone, preset: str):
    """One training step's loss moves every tensor of the adapter and leaves no gradient on the backbone."""
    before = backbone.weights_digest()
    model = create_model(backbone, preset).train()
    model(backbone.pack(encode(backbone))).pow(2).sum().backward()
    still = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().max() > 0]
    assert still == []
    assert not any(t.requires_grad for norm in backbone.model.norms() for t in (norm.weight, norm.bias))
    assert backbone.weights_digest() == before


@pytest.mark.parametrize(
    ("preset", "overrides"),
    [(preset, {}) for preset in PRESETS]
    + [("pfeiffer", {"map": "lphm", "gated": "true"}), ("houlsby", {"map": "phm"}), ("houlsby", {"map": "lowrank"})],
)
def test_gradients_are_those_of_the_formulas(
    backbone: Backbone, preset: str, overrides: dict[str, str], request: pytest.FixtureRequest
):
    """Packed rows, in-place sums and frozen kernels give the gradients of a naive padded float64 implementation."""
    directory = request.getfixturevalue(f"{backbone.config.family}_directory")
    model, rows = create_model(backbone, preset, **overrides).eval(), encode(backbone)
    leaves = {name: tensor.requires_grad_() for name, tensor in model.merged().items()}
    model.served = lambda: leaves  # type: ignore[method-assign]
    model(backbone.pack(rows)).pow(2).sum().backward()
    reference = Reference(backbone, _artifact(model, leaves), directory)
    reference.t = {name: tensor.detach().double().requires_grad_() for name, tensor in leaves.items()}
    reference(rows).pow(2).sum().backward()
    for name, leaf in leaves.items():
        wanted = reference.t[name].grad
        assert leaf.grad is not None
        torch.testing.assert_close(leaf.grad.double(), wanted, atol=2e-4 * wanted.abs().max().item() + 1e-6, rtol=2e-4)


def _artifact(model: TrainableAdapter, tensors: dict[str, Tensor]) -> Any:
    return SimpleNamespace(tensors=tensors, manifest=SimpleNamespace(parts=model.parts))


def test_a_prefix_is_trained_through_its_mlp_and_served_without(bert: Backbone):
    """Only the MLP's output is exported; with `mlp=0` the prefixes are parameters of their own."""
    through, direct = create_model(bert, "prefix"), create_model(bert, "prefix", mlp="0")
    assert any(isinstance(source, PrefixMlp) for source in through.sources)
    assert not any(isinstance(source, PrefixMlp) for source in direct.sources)
    assert (
        sorted(through.merged())
        == sorted(direct.merged())
        == ["head.bias", "head.weight", "prefix.keys", "prefix.values"]
    )


def test_a_prefix_mlp_lays_its_output_out_by_layer(bert: Backbone):
    """Layer i's keys are block 2i of each position's output and its values block 2i + 1 (methods.md 1.12)."""
    model = create_model(bert, "prefix", length="5")
    (mlp,) = [source for source in model.sources if isinstance(source, PrefixMlp)]
    flat, served = mlp.mlp(mlp.embedding), mlp()
    hidden = bert.config.hidden_size
    for layer in range(bert.config.num_layers):
        keys, values = (flat[:, (2 * layer + k) * hidden : (2 * layer + k + 1) * hidden] for k in (0, 1))
        assert torch.equal(served["prefix.keys"][layer], keys)
        assert torch.equal(served["prefix.values"][layer], values)


@pytest.mark.parametrize(("share", "shared", "copied"), [("up", "up", 1), ("down", "down", 1), ("none", None, 2)])
def test_adamix_counts(bert: Backbone, share: str, shared: str | None, copied: int):
    """L (M (Hd + d) + Hd + H) parameters with a shared up-projection, and so on (methods.md 5.6), less the head."""
    model = create_model(bert, "adamix", share=share, bottleneck="8", experts="4")
    hidden, layers, size = bert.config.hidden_size, bert.config.num_layers, 8
    down, up = hidden * size + size, hidden * size + hidden
    wanted = layers * ((1 if shared == "down" else 4) * down + (1 if shared == "up" else 4) * up)
    head = sum(tensor.numel() for name, tensor in model.merged().items() if name.startswith("head"))
    assert sum(parameter.numel() for parameter in model.parameters()) - head == wanted
    assert sum(isinstance(source, Experts) for source in model.sources) == copied
    assert model.is_mixture


def test_experts_begin_apart(bert: Backbone):
    """Each copy is drawn for itself, not copied from the first."""
    settings = find_preset("adamix").settings({})
    model = TrainableAdapter(
        bert, find_preset("adamix").compose(settings, bert.config, outputs=2), settings, dropout=0.0, seed=0
    )
    (weight,) = [p for name, p in model.named_parameters() if name.endswith("bottleneck/down/weight")]
    assert weight.shape[0] == 4
    assert all((weight[one] - weight[0]).abs().max() > 0.01 for one in (1, 2, 3))


def test_a_training_pass_is_routed_and_an_evaluation_is_not(bert: Backbone):
    """Two training passes of AdaMix differ, two evaluations do not; without experts only dropout would differ."""
    packed = bert.pack(encode(bert))
    model = create_model(bert, "adamix", experts="8")
    model._dropout = 0.0
    assert not torch.equal(model(packed), model(packed))
    model.eval()
    assert torch.equal(model(packed), model(packed))
    plain = create_model(bert, "houlsby")
    assert not torch.equal(plain(packed), plain(packed))
    plain._dropout = 0.0
    assert torch.equal(plain(packed), plain(packed))


def test_a_fresh_adapter_starts_at_the_backbone(bert: Backbone):
    """LoRA and BitFit begin exactly at the backbone, Compacter within 1e-5 of it (methods.md section 9, vector 8)."""
    packed = bert.pack(encode(bert))
    bare = bert.model(packed)[packed.first_tokens]
    for preset, allowed in (("lora", 0.0), ("bitfit", 0.0), ("compacter", 1e-5)):
        settings = find_preset(preset).settings({"pooling": "first", "head_hidden": "false"})
        parts = find_preset(preset).compose(settings, bert.config, outputs=2)
        model = TrainableAdapter(bert, parts, settings, dropout=0.0, seed=0).eval()
        weight, bias = (model.merged()[f"head.{name}"] for name in ("weight", "bias"))
        with torch.inference_mode():
            assert (model(packed) - torch.addmm(bias, bare, weight)).abs().max() <= allowed


def test_a_regression_starts_at_the_mean(bert: Backbone):
    """`center` sets the last bias alone."""
    settings = find_preset("lora").settings({"head_hidden": "true"})
    model = TrainableAdapter(
        bert, find_preset("lora").compose(settings, bert.config, outputs=1), settings, dropout=0, seed=0
    )
    model.center(2.5)
    assert model.merged()["head.bias"].tolist() == [2.5]
    assert not model.merged()["head.dense.bias"].any()


def test_the_state_is_the_adapter_alone(bert: Backbone):
    """A checkpoint of a Compacter on the small backbone holds its parameters and no backbone weight."""
    model = create_model(bert, "compacter")
    assert sum(t.numel() for t in model.state_dict().values()) == sum(t.numel() for t in model.merged().values())


@pytest.mark.parametrize(
    ("preset", "name", "value"),
    [
        ("adamix", "experts", "0"),
        ("adamix", "consistency", "-1"),
        ("adamix", "consistency", "nan"),
        ("prefix", "mlp", "-4"),
    ],
)
def test_training_settings_are_bounded(bert: Backbone, preset: str, name: str, value: str):
    """What shapes only the training is checked too."""
    settings = find_preset(preset).settings({name: value})
    parts = find_preset(preset).compose(settings, bert.config, outputs=2)
    with pytest.raises(TrainingError, match=f"setting '{name}' is .*; it must be from"):
        TrainableAdapter(bert, parts, settings, dropout=0.0, seed=0)
