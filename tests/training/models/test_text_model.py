"""The trainable form on a T5: it is what will be served, its gradients are right, and the backbone stays as it was."""

from collections.abc import Callable

import pytest
import torch
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.golden.proof import Candidate
from peltier_adapters.inputs import encode_input
from peltier_adapters.presets.presets import PRESETS, find_preset
from peltier_adapters.residency.bank import Banks
from peltier_adapters.spec.parts import tensor_shapes
from peltier_adapters.spec.tasks import DecodingSpec, TaskSpec
from peltier_backbone import load
from peltier_backbone.backbone import Backbone
from peltier_backbone.decoding.targets import Targets
from peltier_backbone.load import load_backbone
from peltier_training.data.dataset import collate_texts
from peltier_training.data.examples import Example
from peltier_training.data.rows import text_rows
from peltier_training.fit.objective import TextObjective
from peltier_training.models.model import NO_DROPOUT, Dropout, TextAdapter
from peltier_training.models.stream import Stream
from torch import Tensor

PRESETS_ON_T5 = [preset.name for preset in PRESETS.values() if preset.t5]
TEXTS = ["good", "a bad film", "the plot was not very good , and the actor is dull", "is a is a is a film"]
TARGETS = ("good", "not good", "dull")
TASK = TaskSpec(
    type="classification",
    labels=("a", "b", "c"),
    inputs="single",
    max_length=64,
    template="film {text}",
    targets=TARGETS,
    decoding=DecodingSpec(answer="score"),
)
# The papers' sizes do not divide the small backbones'.
SMALL = {
    **{key: {"bottleneck": "8"} for key in ("houlsby", "pfeiffer", "lowrank", "phm", "compacter", "compacter++")},
    "pfeiffer-attention": {"bottleneck": "8"},
    **{key: {"mlp": "16"} for key in PRESETS if key.startswith(("prefix", "unipelt"))},
    **{key: {"length": "4"} for key in ("prompt-r", "prompt-t")},
    "adapterdrop": {"bottleneck": "8", "skip": "1"},
    # Its scale of 8 on weights this far from their start bends the loss too much for differences to see its slope.
    "adamix-lora": {"alpha": "8"},
}


def create_model(backbone: Backbone, preset: str, **overrides: str) -> TextAdapter:
    """A trainable adapter far from its initial values, so that every part matters."""
    settings = find_preset(preset).settings(SMALL.get(preset, {}) | overrides, backbone.config)
    parts = find_preset(preset).compose(settings, backbone.config, outputs=0)
    torch.manual_seed(0)
    model = TextAdapter(backbone, parts, settings, seed=0, dropout=Dropout(0.1, 0.1))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def read(model: TextAdapter, backbone: Backbone, labels: list[int]) -> tuple[Tensor, Tensor]:
    """Logits [tokens, vocabulary] of `TEXTS` with these labels, and the tokens that should be said."""
    examples = [Example(text, TASK.labels[label], "d:1") for text, label in zip(TEXTS, labels, strict=True)]
    rows = text_rows(backbone, TASK, model.parts, examples)
    batch = collate_texts([rows[number] for number in range(len(rows))])
    targets = Targets.create(batch["targets"], None, backbone.device)
    return model(backbone.pack(batch["rows"]), targets), batch["labels"]


def log_likelihoods(model: TextAdapter, backbone: Backbone, label: int) -> Tensor:
    """Of `TARGETS[label]`, for each of `TEXTS`."""
    logits, said = read(model, backbone, [label] * len(TEXTS))
    steps = logits.log_softmax(-1).gather(1, said[:, None])
    return steps.view(len(TEXTS), -1).sum(1)


@pytest.fixture(params=["t5", "t5_gated"])
def backbone(request: pytest.FixtureRequest) -> Backbone:
    return request.getfixturevalue(request.param)  # type: ignore[no-any-return]


@pytest.mark.parametrize("preset", PRESETS_ON_T5)
def test_training_is_serving(backbone: Backbone, preset: str):
    """The trainable form in evaluation, with gradients recorded, scores label strings as a server does."""
    model = create_model(backbone, preset).eval()
    found = torch.stack([log_likelihoods(model, backbone, label) for label in range(3)], 1)
    assert found.requires_grad
    artifact = Candidate("toy", preset, model.parts, model.merged(), TASK).unproved(backbone, TEXTS)
    resident = Banks(backbone).add(artifact)
    rows = [Row(encode_input(backbone, TASK, text), resident) for text in TEXTS]
    served = torch.stack([output.logits for output in forward(backbone, rows)])
    torch.testing.assert_close(found.detach(), served, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("preset", PRESETS_ON_T5)
def test_exporting_keeps_every_tensor(backbone: Backbone, preset: str):
    """Merged experts and evaluated prefixes are the tensors of the spec and give the bits of the trainable form."""
    model = create_model(backbone, preset).eval()
    with torch.inference_mode():
        before, _ = read(model, backbone, [0, 1, 2, 0])
        merged = model.merged()
        assert {name: tuple(t.shape) for name, t in merged.items()} == tensor_shapes(model.parts, backbone.config)
        model.served = lambda stream: merged  # type: ignore[method-assign]
        assert torch.equal(read(model, backbone, [0, 1, 2, 0])[0], before)


@pytest.mark.parametrize("preset", PRESETS_ON_T5)
def test_gradients_reach_every_parameter(backbone: Backbone, preset: str):
    """One training step's loss moves every tensor of the adapter, in both stacks, and nothing of the backbone."""
    before = backbone.weights_digest()
    model = create_model(backbone, preset).train()
    logits, said = read(model, backbone, [0, 1, 2, 0])
    TextObjective(0.0).task_loss(logits, said).backward()  # type: ignore[no-untyped-call]
    still = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().max() > 0]
    assert still == []
    assert not any(norm.weight.requires_grad for norm in backbone.t5.norms())
    assert backbone.weights_digest() == before


DIFFERENCES = [(preset, {}) for preset in PRESETS_ON_T5] + [
    ("houlsby", {"gated": "true"}),
    ("lora", {"targets": "query,key,value", "gated": "true"}),
    ("lora", {"targets": "all-linear"}),
    ("pfeiffer-ffn", {"gated": "true", "sites": "attention,ffn"}),
]
# Every kind of part and of map; all others are held to the products of float64 below.
PARTS = ("houlsby", "lowrank", "phm", "compacter", "unipelt-apl-central", "prompt-t", "bitfit", "adamix-lora")


@pytest.fixture(scope="module")
def exact(t5: Backbone, t5_gated: Backbone) -> dict[str, Backbone]:
    """The small T5s in float64, by their names in float32."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(load.DTYPES, "float64", torch.float64)
        return {one.name: load_backbone(one.name, dtype="float64") for one in (t5, t5_gated)}


@pytest.fixture
def in_float64(monkeypatch: pytest.MonkeyPatch) -> None:
    """Gates and attention weights, which are float32 in every model, are float64 too."""
    softmax = torch.Tensor.softmax
    monkeypatch.setattr(torch.Tensor, "float", torch.Tensor.double)
    monkeypatch.setattr(torch.Tensor, "softmax", lambda x, dim, dtype=None: softmax(x, dim))


@pytest.mark.usefixtures("in_float64")
@pytest.mark.parametrize(
    ("family", "preset", "overrides"),
    [
        pytest.param(family, preset, overrides, marks=[] if family == "t5" and preset in PARTS else [pytest.mark.slow])
        for family in ("t5", "t5_gated")
        for preset, overrides in DIFFERENCES
    ],
)
def test_gradients_are_slopes(
    family: str, preset: str, overrides: dict[str, str], request: pytest.FixtureRequest, exact: dict[str, Backbone]
):
    """Each tensor's gradient is the loss's slope along it, by central differences in float64."""
    backbone = exact[request.getfixturevalue(family).name]
    model = create_model(backbone, preset, **overrides).eval().double()
    tensors = {name: tensor.requires_grad_() for name, tensor in model.merged().items()}
    loss = _loss_of(model, backbone, tensors)
    loss().backward()
    for name, tensor in tensors.items():
        assert tensor.grad is not None
        steepest, random = tensor.grad / tensor.grad.norm(), torch.randn_like(tensor)
        for direction in (steepest, random / random.norm()):
            wanted = float((tensor.grad * direction).sum())
            # Rounding is 1e-16 of a loss of about 10, over twice the step. More is for a kink of ReLU within the step.
            assert _slope(loss, tensor, direction) == pytest.approx(wanted, rel=1e-4, abs=1e-3), name


def _loss_of(model: TextAdapter, backbone: Backbone, tensors: dict[str, Tensor]) -> Callable[[], Tensor]:
    model.served = lambda stream: tensors  # type: ignore[method-assign]

    def loss() -> Tensor:
        logits, said = read(model, backbone, [0, 1, 2, 0])
        return torch.nn.functional.cross_entropy(logits, said)

    return loss


def _slope(loss: Callable[[], Tensor], tensor: Tensor, direction: Tensor, step: float = 1e-7) -> float:
    with torch.no_grad():
        tensor += step * direction
        above = loss()
        tensor -= 2 * step * direction
        below = loss()
        tensor += step * direction
    return float((above - below) / (2 * step))


@pytest.mark.parametrize("preset", PRESETS_ON_T5)
def test_gradients_are_those_of_float64(backbone: Backbone, preset: str, exact: dict[str, Backbone]):
    """The float32 kernels' gradients are the plain float64 products' to 1e-3 of each tensor's largest."""
    precise = exact[backbone.name]
    model, wide = create_model(backbone, preset).eval(), create_model(precise, preset).eval().double()
    tensors = {name: tensor.requires_grad_() for name, tensor in model.merged().items()}
    wider = {name: tensor.detach().double().requires_grad_() for name, tensor in tensors.items()}
    _loss_of(model, backbone, tensors)().backward()
    _loss_of(wide, precise, wider)().backward()
    for name, tensor in tensors.items():
        wanted = wider[name].grad
        assert wanted is not None
        assert tensor.grad is not None
        # A bias of all keys moves no attention: there both gradients are rounding.
        atol = 1e-3 * float(wanted.abs().max()) + 1e-6
        torch.testing.assert_close(tensor.grad.double(), wanted, atol=atol, rtol=1e-3)


def test_a_fresh_adapter_starts_at_the_backbone(t5: Backbone):
    """LoRA begins exactly at the backbone, BitFit but for the rounding of its norms, Compacter within 1e-5 of its
    largest logit (vector 8)."""
    for preset, allowed in (("lora", 0.0), ("bitfit", 5e-6), ("compacter", 1e-5)):
        settings = find_preset(preset).settings(SMALL.get(preset, {}), t5.config)
        parts = find_preset(preset).compose(settings, t5.config, outputs=0)
        model = TextAdapter(t5, parts, settings, seed=0).eval()
        with torch.inference_mode():
            logits, _ = read(model, t5, [0, 1, 2, 0])
            model.parts, model.served = (), lambda stream: {}  # type: ignore[method-assign]
            bare, _ = read(model, t5, [0, 1, 2, 0])
        assert (logits - bare).abs().max() <= allowed * bare.abs().max(), preset


def test_a_training_pass_is_routed_and_an_evaluation_is_not(t5: Backbone):
    """Two training passes of AdaMix differ, two evaluations do not."""
    model = create_model(t5, "adamix", experts="8")
    model._dropout = NO_DROPOUT
    passes = [read(model, t5, [0, 1, 2, 0])[0] for _ in range(2)]
    assert not torch.equal(*passes)
    model.eval()
    assert torch.equal(*(read(model, t5, [0, 1, 2, 0])[0] for _ in range(2)))


def test_samples_are_routed_apart(t5: Backbone):
    """With `routing=sample` a row is encoded and written by the copies drawn for it alone, as if it stood alone."""
    model = create_model(t5, "adamix", routing="sample", experts="8")
    model._dropout = NO_DROPOUT
    drawn = model._drawn(len(TEXTS), Stream(0))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "_drawn", lambda num, stream: drawn)
        together = log_likelihoods(model, t5, 1)
    model.eval()
    for row in range(len(TEXTS)):
        model.served = lambda stream, row=row: drawn[row]  # type: ignore[method-assign]
        torch.testing.assert_close(together[row], log_likelihoods(model, t5, 1)[row], atol=1e-5, rtol=1e-5)


def test_the_state_is_the_adapter_alone(t5: Backbone):
    """A checkpoint of a Compacter holds its parameters and no backbone weight."""
    model = create_model(t5, "compacter")
    assert sum(t.numel() for t in model.state_dict().values()) == sum(t.numel() for t in model.merged().values())
