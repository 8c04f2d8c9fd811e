"""The trainable form: it is what will be served, its gradients are right, and the backbone stays as it was."""

import runpy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.golden.proof import Candidate
from peltier_adapters.inputs import encode_input
from peltier_adapters.presets.presets import PRESETS, find_preset
from peltier_adapters.residency.bank import Banks
from peltier_adapters.spec.parts import tensor_shapes
from peltier_adapters.spec.tasks import TaskSpec
from peltier_backbone.backbone import Backbone
from peltier_backbone.text.packing import Encoded
from peltier_training.data.examples import Example
from peltier_training.learners.learner import start_at_mean
from peltier_training.models.dropout import NO_DROPOUT, Dropout
from peltier_training.models.model import HeadedAdapter
from torch import Tensor

ENCODERS = [preset.name for preset in PRESETS.values() if preset.encoder]
TEXTS = ["good", "a bad film", "the plot was not very good , and the actor is dull", "is a is a is a film"]
TASK = TaskSpec(type="classification", labels=("a", "b", "c"), inputs="single", max_length=64)
_REFERENCES = Path(__file__).parents[2] / "adapters_store"
Reference = runpy.run_path(str(_REFERENCES / "test_reference.py"))["Reference"]
ModernReference = runpy.run_path(str(_REFERENCES / "test_reference_modernbert.py"))["ModernReference"]


SMALL = {"adapterdrop": {"skip": "1"}} | {
    key: {"mlp": "16"} for key in PRESETS if key.startswith(("prefix", "unipelt"))
}


def create_model(backbone: Backbone, preset: str, **overrides: str) -> HeadedAdapter:
    """A trainable adapter far from its initial values, so that every part matters."""
    settings = find_preset(preset).settings(SMALL.get(preset, {}) | overrides, backbone.config)
    parts = find_preset(preset).compose(settings, backbone.config, outputs=len(TASK.labels))
    torch.manual_seed(0)
    model = HeadedAdapter(backbone, parts, settings, seed=0, dropout=Dropout(0.1, 0.1))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def encode(backbone: Backbone) -> list[Encoded]:
    return [encode_input(backbone, TASK, text) for text in TEXTS]


@pytest.fixture(params=["bert", "roberta", "modernbert"])
def backbone(request: pytest.FixtureRequest) -> Backbone:
    return request.getfixturevalue(request.param)  # type: ignore[no-any-return]


@pytest.mark.parametrize("preset", ENCODERS)
def test_training_is_serving(backbone: Backbone, preset: str):
    """The trainable form in evaluation, with gradients recorded, gives what a server gives for the exported tensors."""
    model = create_model(backbone, preset).eval()
    logits = model(backbone.pack(encode(backbone)))
    assert logits.requires_grad
    artifact = Candidate("toy", preset, model.parts, model.merged(), TASK).unproved(backbone, TEXTS)
    resident = Banks(backbone).add(artifact)
    served = torch.stack([out.logits for out in forward(backbone, [Row(one, resident) for one in encode(backbone)])])
    # The GELU of the native kernels is that of torch to 4e-7, in every layer.
    torch.testing.assert_close(logits.detach(), served, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("preset", ENCODERS)
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


@pytest.mark.parametrize("preset", ENCODERS)
def test_gradients_reach_every_parameter(backbone: Backbone, preset: str):
    """One training step's loss moves every tensor of the adapter and leaves no gradient on the backbone."""
    before = backbone.weights_digest()
    model = create_model(backbone, preset).train()
    model(backbone.pack(encode(backbone))).pow(2).sum().backward()
    still = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().max() > 0]
    assert still == []
    weights = [t for norm in backbone.model.norms() for t in (norm.weight, norm.bias) if t is not None]
    assert not any(t.requires_grad for t in weights)
    assert backbone.weights_digest() == before


@pytest.mark.parametrize(
    ("preset", "overrides"),
    [(preset, {}) for preset in ENCODERS]
    + [("pfeiffer", {"map": "lphm", "gated": "true"}), ("houlsby", {"map": "phm"}), ("houlsby", {"map": "lowrank"})]
    + [("pfeiffer-ffn", {"input": "sum"}), ("bitfit", {"first_block": "1"})]
    + [("lora", {"targets": "all-linear", "gated": "true"})]
    + [("unipelt-apl-central", {"first_block": "1", "norms": "true"})],
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
    kind = ModernReference if backbone.config.family == "modernbert" else Reference
    reference = kind(backbone, _artifact(model, leaves), directory)
    exact = {name: tensor.detach().double().requires_grad_() for name, tensor in leaves.items()}
    reference.t = {name: reference.unskipped(name, tensor) for name, tensor in exact.items()}
    reference(rows).pow(2).sum().backward()
    for name, leaf in leaves.items():
        wanted = exact[name].grad
        assert leaf.grad is not None
        assert wanted is not None
        torch.testing.assert_close(leaf.grad.double(), wanted, atol=2e-4 * wanted.abs().max().item() + 1e-6, rtol=2e-4)


def _artifact(model: HeadedAdapter, tensors: dict[str, Tensor]) -> Any:
    return SimpleNamespace(tensors=tensors, manifest=SimpleNamespace(parts=model.parts))


def test_a_training_pass_is_routed_and_an_evaluation_is_not(bert: Backbone):
    """Two training passes of AdaMix differ, two evaluations do not; without experts only dropout would differ."""
    packed = bert.pack(encode(bert))
    model = create_model(bert, "adamix", experts="8")
    model._dropout = NO_DROPOUT
    assert not torch.equal(model(packed), model(packed))
    model.eval()
    assert torch.equal(model(packed), model(packed))
    plain = create_model(bert, "houlsby")
    assert not torch.equal(plain(packed), plain(packed))
    plain._dropout = NO_DROPOUT
    assert torch.equal(plain(packed), plain(packed))


@pytest.mark.parametrize("preset", ["adamix", "adamix-lora"])
def test_samples_are_routed_apart(bert: Backbone, preset: str):
    """With `routing=sample` each row of a training batch is answered by the copies drawn for it alone."""
    rows = encode(bert)
    model = create_model(bert, preset, routing="sample", experts="8")
    model._dropout = NO_DROPOUT
    drawn = model._drawn(len(rows))
    assert not torch.equal(*(next(iter(own.values())) for own in drawn[:2]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "_drawn", lambda num: drawn)
        together = model(bert.pack(rows))
    model.eval()
    for row, one in enumerate(rows):
        model.served = lambda row=row: drawn[row]  # type: ignore[method-assign]
        torch.testing.assert_close(together[row], model(bert.pack([one]))[0], atol=2e-6, rtol=1e-5)


def test_gradients_of_samples_reach_their_copies(bert: Backbone):
    """A copy that no sample drew at a place has no gradient there, every drawn one has."""
    model = create_model(bert, "adamix", routing="sample", experts="8").train()
    torch.manual_seed(1)
    model(bert.pack(encode(bert))).pow(2).sum().backward()
    (bias,) = [p for name, p in model.named_parameters() if name.endswith("down/bias")]
    assert bias.grad is not None
    touched = bias.grad.abs().amax(-1) > 0  # [experts, sites, layers]
    assert touched.any(0).all()
    assert 1 < float(touched.sum(0).float().mean()) <= len(TEXTS)


def test_a_fresh_adapter_starts_at_the_backbone(bert: Backbone):
    """LoRA begins exactly at the backbone, BitFit but for the rounding of its norms, Compacter within 1e-5
    (docs/methods.md#initialisation)."""
    packed = bert.pack(encode(bert))
    with torch.inference_mode():
        bare = bert.bert(packed)[packed.first_tokens]
    for preset, allowed in (("lora", 0.0), ("bitfit", 1e-6), ("compacter", 1e-5)):
        settings = find_preset(preset).settings({"pooling": "first", "head_hidden": "false"}, bert.config)
        parts = find_preset(preset).compose(settings, bert.config, outputs=2)
        model = HeadedAdapter(bert, parts, settings, seed=0).eval()
        weight, bias = (model.merged()[f"head.{name}"] for name in ("weight", "bias"))
        with torch.inference_mode():
            assert (model(packed) - torch.addmm(bias, bare, weight)).abs().max() <= allowed


def test_a_regression_starts_at_the_mean(bert: Backbone):
    """Only the bias of the output layer is set."""
    settings = find_preset("lora").settings({"head_hidden": "true"}, bert.config)
    model = HeadedAdapter(bert, find_preset("lora").compose(settings, bert.config, outputs=1), settings, seed=0)
    examples = [Example("a", label, "d:1") for label in (2, 3)]
    start_at_mean(model, TaskSpec(type="regression", labels=("value",), inputs="single", max_length=8), examples)
    assert model.merged()["head.bias"].tolist() == [2.5]
    assert not model.merged()["head.dense.bias"].any()


def test_the_state_is_the_adapter_alone(bert: Backbone):
    """A checkpoint of a Compacter on the small backbone holds its parameters and no backbone weight."""
    model = create_model(bert, "compacter")
    assert sum(t.numel() for t in model.state_dict().values()) == sum(t.numel() for t in model.merged().values())
