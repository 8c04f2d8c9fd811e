"""The trainable form: it is what will be served, its gradients are right, and the backbone stays as it was."""

import runpy
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.golden.proof import Candidate
from peltier_adapters.inputs import encode_input
from peltier_adapters.ops.backend import AdapterGroup
from peltier_adapters.parts import lower
from peltier_adapters.presets.presets import PRESETS, find_preset
from peltier_adapters.residency.bank import Banks
from peltier_adapters.spec.parts import tensor_shapes
from peltier_adapters.spec.tasks import TaskSpec
from peltier_backbone.backbone import Backbone
from peltier_backbone.decoding.targets import Targets
from peltier_backbone.text.packing import Encoded
from peltier_training.data.examples import Example
from peltier_training.learners import start_at_mean
from peltier_training.models.model import NO_DROPOUT, Dropout, DropoutAdaptation, HeadedAdapter
from peltier_training.models.stream import Stream
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoConfig, AutoModel, T5ForConditionalGeneration

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
        model.served = lambda stream: merged  # type: ignore[method-assign]
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
    model.served = lambda stream: leaves  # type: ignore[method-assign]
    model(backbone.pack(rows)).pow(2).sum().backward()
    kind = ModernReference if backbone.config.family == "modernbert" else Reference
    reference = kind(backbone, _artifact(model, leaves), directory)
    exact = {name: tensor.detach().double().requires_grad_() for name, tensor in leaves.items()}
    reference.read(exact)
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
    drawn = model._drawn(len(rows), Stream(0))
    assert not torch.equal(*(next(iter(own.values())) for own in drawn[:2]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "_drawn", lambda num, stream: drawn)
        together = model(bert.pack(rows))
    model.eval()
    for row, one in enumerate(rows):
        model.served = lambda stream, row=row: drawn[row]  # type: ignore[method-assign]
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


DROPPED_TEXTS = ("a good film", "bad", "the plot is very very bad and the actor too")
RATE = 0.1
# DistilBERT has none after its attention, and ModernBERT other places.
DROPPED_ENCODERS = ("bert", "roberta", "electra")


@pytest.fixture
def scaled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each dropout multiplies by 1.5 and leaves out nothing, so that two implementations can be compared."""

    monkeypatch.setattr(F, "dropout", lambda x, p=0.5, training=True, inplace=False: 1.5 * x if training and p else x)
    monkeypatch.setattr(Stream, "drop", lambda self, x, rate: 1.5 * x if rate else x)


def adapt(backbone: Backbone, lengths: Any) -> DropoutAdaptation:
    """The adaptation of rows without an adapter."""
    return DropoutAdaptation(backbone, [AdapterGroup(len(lengths), None)], lengths, RATE, Stream(0))


def encode_dropped(backbone: Backbone) -> list[Encoded]:
    return [backbone.tokenizer.encode(text, max_tokens=32) for text in DROPPED_TEXTS]


@pytest.mark.usefixtures("scaled")
@pytest.mark.parametrize("family", DROPPED_ENCODERS)
def test_an_encoder_has_it_where_transformers_has_it(family: str, request: pytest.FixtureRequest):
    """Without dropout of attention weights, which transformers has too."""
    backbone: Backbone = request.getfixturevalue(family)
    config = AutoConfig.from_pretrained(backbone.name, attention_dropout=0.0, attention_probs_dropout_prob=0.0)
    whole = AutoModel.from_pretrained(backbone.name, config=config, dtype=torch.float32).train()
    for row in encode_dropped(backbone):
        packed = backbone.pack([row])
        found = backbone.bert(packed, adapt(backbone, packed.lengths))
        with torch.no_grad():
            wanted = whole(packed.ids[None]).last_hidden_state[0]
        torch.testing.assert_close(found, wanted, atol=2e-5, rtol=1e-4)


@pytest.mark.usefixtures("scaled")
@pytest.mark.parametrize("family", ["t5", "t5_gated"])
def test_a_t5_has_it_where_transformers_has_it(family: str, request: pytest.FixtureRequest):
    """Without that of attention weights, of inner states and of the decoder's embeddings. The last one, before the
    output layer, is the output's."""
    backbone: Backbone = request.getfixturevalue(family)
    whole = T5ForConditionalGeneration.from_pretrained(backbone.name, dtype=torch.float32).train()
    whole.decoder.dropout.p = 0.0
    for name, module in whole.named_modules():
        if name.endswith("Attention"):
            module.dropout = 0.0
        if name.endswith("DenseReluDense"):
            module.dropout.p = 0.0
    targets = [0, 5, 6, 7]
    for row in encode_dropped(backbone):
        packed, model = backbone.pack([row]), backbone.t5
        encoder = adapt(backbone, packed.lengths)
        memory = model.project_kv(packed, model.encode(packed, encoder), encoder)
        nodes = Targets.create([targets], None, backbone.device)
        found = model.logits(model.decode(nodes, memory, adapt(backbone, [1] * len(targets))))
        with torch.no_grad():
            wanted = whole(input_ids=packed.ids[None], decoder_input_ids=torch.tensor([targets])).logits[0]
        torch.testing.assert_close(found, wanted[:, : found.shape[1]], atol=2e-4, rtol=1e-4)


def random_tensors(shapes: Callable[[], dict[str, Tensor]]) -> dict[str, Tensor]:
    return {name: torch.randn_like(tensor) for name, tensor in shapes().items()}


@pytest.mark.parametrize("preset", ["houlsby", "pfeiffer", "adamix", "lora", "unipelt-apl"])
def test_an_adapter_comes_before_it(bert: Backbone, preset: str, monkeypatch: pytest.MonkeyPatch):
    """Where dropout leaves nothing of the sub-layers, nothing is left of their adapters."""
    monkeypatch.setattr(Stream, "drop", lambda self, x, rate: torch.zeros_like(x))
    settings = find_preset(preset).settings({}, bert.config)
    parts = find_preset(preset).compose(settings, bert.config, outputs=2)
    model = HeadedAdapter(bert, parts, settings, seed=0)
    program = lower(parts, random_tensors(model.merged), bert)
    packed = bert.pack(encode_dropped(bert))
    group = AdapterGroup(len(DROPPED_TEXTS), program)
    with torch.no_grad():
        adapted = bert.bert(packed, DropoutAdaptation(bert, [group], packed.lengths, RATE, Stream(0)))
        bare = bert.bert(packed, adapt(bert, packed.lengths))
    assert torch.equal(adapted, bare)


def test_a_pass_in_training_has_it_and_an_evaluation_has_not(bert: Backbone):
    """`Dropout.backbone` is a rate of its own beside that of the output."""
    settings = find_preset("lora").settings({}, bert.config)
    parts = find_preset("lora").compose(settings, bert.config, outputs=2)
    packed = bert.pack(encode_dropped(bert))
    model = HeadedAdapter(bert, parts, settings, seed=0, dropout=Dropout(backbone=0.5))
    assert not torch.equal(model(packed), model(packed))
    model.eval()
    assert torch.equal(model(packed), model(packed))
