"""The trainable form: it is what will be served, its gradients are right, and the backbone stays as it was."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
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
from peltier_adapters.spec.tasks import DecodingSpec, TaskSpec
from peltier_backbone import load
from peltier_backbone.backbone import Backbone
from peltier_backbone.bert.bert import Bert
from peltier_backbone.decoding.targets import Targets
from peltier_backbone.load import load_backbone
from peltier_backbone.text.packing import Encoded, Packed
from peltier_training.baselines.tuned_model import dropout_rates
from peltier_training.config.preparation import prepare
from peltier_training.data.dataset import collate_texts
from peltier_training.data.examples import Example
from peltier_training.data.rows import text_rows
from peltier_training.learners import start_at_mean
from peltier_training.models.model import (
    NO_DROPOUT,
    Dropout,
    DropoutAdaptation,
    HeadedAdapter,
    LowerBlocks,
    TextAdapter,
)
from peltier_training.models.sources import Stream
from peltier_training.train import learn
from torch import Tensor
from torch.nn import functional as F
from transformers import AutoConfig, AutoModel, AutoModelForSeq2SeqLM

from tests.adapters_store.test_reference import ModernReference, Reference
from tests.support.cover import cover
from tests.training.conftest import MakeRun

TEXTS = ["good", "a bad film", "the plot was not very good , and the actor is dull", "is a is a is a film"]

Model = HeadedAdapter | TextAdapter
_MLP = {key: {"mlp": "16"} for key in PRESETS if key.startswith(("prefix", "unipelt"))}


@dataclass(frozen=True)
class Form:
    """How the adapters of encoders, or those of T5s, are made and asked. `small` has settings of presets, because the
    papers' sizes do not all fit the small backbones."""

    kind: type[Model]
    families: Sequence[str]
    task: TaskSpec
    num_outputs: int
    small: Mapping[str, Mapping[str, str]]

    def create(self, backbone: Backbone, preset: str, **overrides: str) -> Any:
        """A trainable adapter far from its initial values, so that every part matters."""
        settings = find_preset(preset).settings({**self.small.get(preset, {}), **overrides}, backbone.config)
        parts = find_preset(preset).compose(settings, backbone.config, outputs=self.num_outputs)
        torch.manual_seed(0)
        model = self.kind(backbone, parts, settings, seed=0, dropout=Dropout(0.1, 0.1))
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(0.2 * torch.randn_like(parameter))
        return model

    def outputs(self, model: Any) -> Tensor:
        """What a training step reads of `TEXTS`: logits of rows, or of the tokens of labels."""
        return self._read(model, [0, 1, 2, 0])[0]

    def loss(self, model: Any) -> Tensor:
        outputs, said = self._read(model, [0, 1, 2, 0])
        return outputs.pow(2).sum() if said is None else F.cross_entropy(outputs, said)

    def answers(self, model: Any) -> Tensor:
        """What a server answers to `TEXTS`, [texts, labels]."""
        if not self.task.targets:
            return self.outputs(model)
        return torch.stack([self._log_likelihoods(model, label) for label in range(len(self.task.labels))], 1)

    def _log_likelihoods(self, model: Any, label: int) -> Tensor:
        logits, said = self._read(model, [label] * len(TEXTS))
        return logits.log_softmax(-1).gather(1, said[:, None]).view(len(TEXTS), -1).sum(1)

    def _read(self, model: Any, labels: Sequence[int]) -> tuple[Tensor, Tensor | None]:
        """The outputs for `TEXTS`, and the tokens that a T5 should say."""
        backbone = model.backbone
        if not self.task.targets:
            return model(backbone.pack(encode(backbone))), None
        examples = [Example(text, self.task.labels[label], "d:1") for text, label in zip(TEXTS, labels, strict=True)]
        rows = text_rows(backbone, self.task, model.parts, examples)
        batch = collate_texts([rows[number] for number in range(len(rows))])
        targets = Targets.create(batch["targets"], None, backbone.device)
        return model(backbone.pack(batch["rows"]), targets), batch["labels"]


_TASK: dict[str, Any] = {"type": "classification", "labels": ("a", "b", "c"), "inputs": "single", "max_length": 64}
HEADS = Form(
    HeadedAdapter, ("bert", "roberta", "modernbert"), TaskSpec(**_TASK), 3, {"adapterdrop": {"skip": "1"}, **_MLP}
)
TARGETS = Form(
    TextAdapter,
    ("t5", "t5_gated"),
    TaskSpec(
        **_TASK, template="film {text}", targets=("good", "not good", "dull"), decoding=DecodingSpec(answer="score")
    ),
    0,
    {
        **{key: {"bottleneck": "8"} for key in ("houlsby", "pfeiffer", "lowrank", "phm", "compacter", "compacter++")},
        "pfeiffer-attention": {"bottleneck": "8"},
        **_MLP,
        **{key: {"length": "4"} for key in ("prompt-r", "prompt-t")},
        "adapterdrop": {"bottleneck": "8", "skip": "1"},
        # Its scale of 8 on weights this far from their start bends the loss too much for differences to see its slope.
        "adamix-lora": {"alpha": "8"},
    },
)


def form_of(family: str) -> Form:
    return TARGETS if family in TARGETS.families else HEADS


def is_defined(family: str, preset: str) -> bool:
    return PRESETS[preset].t5 is not None if family in TARGETS.families else PRESETS[preset].encoder is not None


def encode(backbone: Backbone) -> list[Encoded]:
    return [encode_input(backbone, HEADS.task, text) for text in TEXTS]


@pytest.fixture
def backbone(family: str, request: pytest.FixtureRequest) -> Backbone:
    return request.getfixturevalue(family)  # type: ignore[no-any-return]


# Each preset on an encoder and on a T5.
each_preset = pytest.mark.parametrize(
    ("family", "preset"),
    cover(
        {"family": (*HEADS.families, *TARGETS.families), "preset": list(PRESETS)},
        where=is_defined,
        pairs=[lambda family, preset: (form_of(family).kind, preset)],
    ),
)


@each_preset
def test_training_is_serving(backbone: Backbone, family: str, preset: str):
    """The trainable form in evaluation, with gradients recorded, answers as a server does with the exported tensors."""
    form = form_of(family)
    model = form.create(backbone, preset).eval()
    found = form.answers(model)
    assert found.requires_grad
    artifact = Candidate("toy", preset, model.parts, model.merged(), form.task).unproved(backbone, TEXTS)
    resident = Banks(backbone).add(artifact)
    rows = [Row(encode_input(backbone, form.task, text), resident) for text in TEXTS]
    served = torch.stack([output.logits for output in forward(backbone, rows)])
    # The GELU of the native kernels is that of torch to 4e-7, in every layer.
    torch.testing.assert_close(found.detach(), served, atol=1e-5, rtol=1e-5)


@each_preset
def test_exporting_changes_nothing(backbone: Backbone, family: str, preset: str):
    """Merged experts and evaluated prefixes are the tensors of the spec and give the bits of the trainable form."""
    form = form_of(family)
    model = form.create(backbone, preset).eval()
    with torch.inference_mode():
        before, merged = form.outputs(model), model.merged()
        assert {name: tuple(t.shape) for name, t in merged.items()} == tensor_shapes(model.parts, backbone.config)
        model.served = lambda stream: merged
        assert torch.equal(form.outputs(model), before)


@each_preset
def test_gradients_reach_every_parameter(backbone: Backbone, family: str, preset: str):
    """One training step's loss moves every tensor of the adapter and leaves no gradient on the backbone."""
    form, before = form_of(family), backbone.weights_digest()
    model = form.create(backbone, preset).train()
    form.loss(model).backward()
    still = [name for name, p in model.named_parameters() if p.grad is None or not p.grad.abs().max() > 0]
    assert still == []
    weights = [t for norm in backbone.model.norms() for t in (norm.weight, norm.bias) if t is not None]
    assert not any(t.requires_grad for t in weights)
    assert backbone.weights_digest() == before


# Presets of encoders, and settings that they do not have.
FORMULAS: list[tuple[str, dict[str, str]]] = [
    *((preset, {}) for preset in PRESETS if PRESETS[preset].encoder),
    ("pfeiffer", {"map": "lphm", "gated": "true"}),
    ("houlsby", {"map": "phm"}),
    ("houlsby", {"map": "lowrank"}),
    ("pfeiffer-ffn", {"input": "sum"}),
    ("bitfit", {"first_block": "1"}),
    ("lora", {"targets": "all-linear", "gated": "true"}),
    ("unipelt-apl-central", {"first_block": "1", "norms": "true"}),
]


@pytest.mark.parametrize(
    ("family", "preset", "overrides"),
    [
        (family, *FORMULAS[number])
        for family, number in cover({"family": HEADS.families, "number": range(len(FORMULAS))})
    ],
)
def test_gradients_are_those_of_the_formulas(backbone, family, preset, overrides, request):
    """Packed rows, in-place sums and frozen kernels give the gradients of a naive padded float64 implementation."""
    model, rows = HEADS.create(backbone, preset, **overrides).eval(), encode(backbone)
    leaves = {name: tensor.requires_grad_() for name, tensor in model.merged().items()}
    model.served = lambda stream: leaves
    HEADS.loss(model).backward()
    kind = ModernReference if family == "modernbert" else Reference
    reference = kind(backbone, _artifact(model, leaves), request.getfixturevalue(f"{family}_directory"))
    exact = {name: tensor.detach().double().requires_grad_() for name, tensor in leaves.items()}
    reference.read(exact)
    reference(rows).pow(2).sum().backward()
    for name, leaf in leaves.items():
        wanted = exact[name].grad
        torch.testing.assert_close(leaf.grad.double(), wanted, atol=2e-4 * wanted.abs().max().item() + 1e-6, rtol=2e-4)


def _artifact(model: HeadedAdapter, tensors: dict[str, Tensor]) -> Any:
    return SimpleNamespace(tensors=tensors, manifest=SimpleNamespace(parts=model.parts))


# Presets of T5s, and settings that they do not have.
DIFFERENCES: list[tuple[str, dict[str, str]]] = [
    *((preset, {}) for preset in PRESETS if PRESETS[preset].t5),
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
        for family in TARGETS.families
        for preset, overrides in DIFFERENCES
    ],
)
def test_gradients_are_slopes(backbone: Backbone, preset: str, overrides: dict[str, str], exact: dict[str, Backbone]):
    """Each tensor's gradient is the loss's slope along it, by central differences in float64."""
    model = TARGETS.create(exact[backbone.name], preset, **overrides).eval().double()
    tensors = _leaves(model, torch.float64)
    TARGETS.loss(model).backward()
    for name, tensor in tensors.items():
        steepest, random = tensor.grad / tensor.grad.norm(), torch.randn_like(tensor)
        for direction in (steepest, random / random.norm()):
            wanted = float((tensor.grad * direction).sum())
            # Rounding is 1e-16 of a loss of about 10, over twice the step. More is for a kink of ReLU within the step.
            found = _slope(lambda: TARGETS.loss(model), tensor, direction)
            assert found == pytest.approx(wanted, rel=1e-4, abs=1e-3), name


def _leaves(model: Any, dtype: torch.dtype) -> dict[str, Tensor]:
    """The served tensors, which the model then reads and which get gradients."""
    tensors = {name: tensor.detach().to(dtype).requires_grad_() for name, tensor in model.merged().items()}
    model.served = lambda stream: tensors
    return tensors


def _slope(loss: Callable[[], Tensor], tensor: Tensor, direction: Tensor, step: float = 1e-7) -> float:
    with torch.no_grad():
        tensor += step * direction
        above = loss()
        tensor -= 2 * step * direction
        below = loss()
        tensor += step * direction
    return float((above - below) / (2 * step))


@pytest.mark.parametrize(
    ("family", "preset"), cover({"family": TARGETS.families, "preset": list(PRESETS)}, where=is_defined)
)
def test_gradients_are_those_of_float64(backbone: Backbone, preset: str, exact: dict[str, Backbone]):
    """The float32 kernels' gradients are the plain float64 products' to 1e-3 of each tensor's largest."""
    model = TARGETS.create(backbone, preset).eval()
    wide = TARGETS.create(exact[backbone.name], preset).eval().double()
    tensors, wider = _leaves(model, torch.float32), _leaves(wide, torch.float64)
    for one in (model, wide):
        TARGETS.loss(one).backward()
    for name, tensor in tensors.items():
        wanted = wider[name].grad
        # A bias of all keys moves no attention: there both gradients are rounding.
        atol = 1e-3 * float(wanted.abs().max()) + 1e-6
        torch.testing.assert_close(tensor.grad.double(), wanted, atol=atol, rtol=1e-3)


@pytest.mark.parametrize("family", ["bert", "t5"])
def test_a_training_pass_is_routed_and_an_evaluation_is_not(backbone: Backbone, family: str):
    """Two training passes of AdaMix differ, two evaluations do not; without experts only dropout differs."""
    form = form_of(family)

    def differs(model: Any) -> bool:
        return not torch.equal(form.outputs(model), form.outputs(model))

    mixture, plain = form.create(backbone, "adamix", experts="8"), form.create(backbone, "houlsby")
    assert differs(plain)
    mixture._dropout = plain._dropout = NO_DROPOUT
    assert (differs(mixture), differs(mixture.eval()), differs(plain)) == (True, False, False)


@pytest.mark.parametrize(
    ("family", "preset", "atol"), [("bert", "adamix", 2e-6), ("bert", "adamix-lora", 2e-6), ("t5", "adamix", 1e-5)]
)
def test_samples_are_routed_apart(backbone: Backbone, family: str, preset: str, atol: float):
    """With `routing=sample` each row of a training batch is answered by the copies drawn for it alone."""
    form = form_of(family)
    model = form.create(backbone, preset, routing="sample", experts="8")
    model._dropout = NO_DROPOUT
    drawn = model._drawn(len(TEXTS), Stream(0))
    assert not torch.equal(*(next(iter(own.values())) for own in drawn[:2]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(model, "_drawn", lambda num, stream: drawn)
        together = form.answers(model)
    model.eval()
    for row in range(len(TEXTS)):
        model.served = lambda stream, row=row: drawn[row]
        torch.testing.assert_close(together[row], form.answers(model)[row], atol=atol, rtol=1e-5)


def test_gradients_of_samples_reach_their_copies(bert: Backbone):
    """A copy that no sample drew at a place has no gradient there, every drawn one has."""
    model = HEADS.create(bert, "adamix", routing="sample", experts="8").train()
    torch.manual_seed(1)
    HEADS.loss(model).backward()
    (bias,) = [p for name, p in model.named_parameters() if name.endswith("down/bias")]
    touched = bias.grad.abs().amax(-1) > 0  # [experts, sites, layers]
    assert touched.any(0).all()
    assert 1 < float(touched.sum(0).float().mean()) <= len(TEXTS)


# How far outputs may be from the backbone's: of a T5 as a share of its largest one.
STARTS = [
    *(("bert", preset, allowed) for preset, allowed in (("lora", 0.0), ("bitfit", 1e-6), ("compacter", 1e-5))),
    *(("t5", preset, allowed) for preset, allowed in (("lora", 0.0), ("bitfit", 5e-6), ("compacter", 1e-5))),
]


@pytest.mark.parametrize(("family", "preset", "allowed"), STARTS)
def test_a_fresh_adapter_starts_at_the_backbone(backbone: Backbone, family: str, preset: str, allowed: float):
    """LoRA begins exactly at the backbone, BitFit but for the rounding of its norms, Compacter within 1e-5
    (docs/methods.md#initialisation)."""
    form = form_of(family)
    own = {} if form is TARGETS else {"pooling": "first", "head_hidden": "false"}
    settings = find_preset(preset).settings({**form.small.get(preset, {}), **own}, backbone.config)
    parts = find_preset(preset).compose(settings, backbone.config, outputs=form.num_outputs)
    model: Any = form.kind(backbone, parts, settings, seed=0).eval()
    with torch.inference_mode():
        outputs = form.outputs(model)
        if form is TARGETS:
            model.parts, model.served = (), lambda stream: {}
            bare = form.outputs(model)
            allowed *= float(bare.abs().max())
        else:
            packed, head = backbone.pack(encode(backbone)), model.merged()
            bare = torch.addmm(head["head.bias"], backbone.bert(packed)[packed.first_tokens], head["head.weight"])
        assert (outputs - bare).abs().max() <= allowed


def test_a_regression_starts_at_the_mean(bert: Backbone):
    """Only the bias of the output layer is set."""
    settings = find_preset("lora").settings({"head_hidden": "true"}, bert.config)
    model = HeadedAdapter(bert, find_preset("lora").compose(settings, bert.config, outputs=1), settings, seed=0)
    examples = [Example("a", label, "d:1") for label in (2, 3)]
    start_at_mean(model, TaskSpec(type="regression", labels=("value",), inputs="single", max_length=8), examples)
    assert model.merged()["head.bias"].tolist() == [2.5]
    assert not model.merged()["head.dense.bias"].any()


@pytest.mark.parametrize("family", ["bert", "t5"])
def test_the_state_is_the_adapter_alone(backbone: Backbone, family: str):
    """A checkpoint of a Compacter holds its parameters and no backbone weight."""
    model = form_of(family).create(backbone, "compacter")
    assert sum(t.numel() for t in model.state_dict().values()) == sum(t.numel() for t in model.merged().values())


DROPPED_TEXTS = ("a good film", "bad", "the plot is very very bad and the actor too")
RATE = 0.1


@dataclass(frozen=True)
class Places:
    """Where an encoder of transformers drops what a training does not (`skipped`), and does not drop what a training
    does: the outputs of the modules `more`. Names are the ends of those of modules."""

    skipped: tuple[str, ...] = ()
    more: tuple[str, ...] = ()


DROPPED_ENCODERS = {
    **dict.fromkeys(("bert", "roberta", "camembert", "electra", "mpnet", "nomic_bert", "jina"), Places()),
    "deberta": Places(skipped=("pos_dropout",)),
    "deberta_v2": Places(skipped=("pos_dropout", "conv.dropout")),
    "gte": Places(skipped=("mlp.dropout",)),
    "distilbert": Places(more=("attention.out_lin",)),
    "modernbert": Places(skipped=("mlp.drop",), more=("attn.Wo", "mlp.Wo")),
    "eurobert": Places(more=("embed_tokens", "self_attn.o_proj", "mlp.down_proj")),
}


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
    """But for attention weights and the places of `DROPPED_ENCODERS`, which the guide names."""
    backbone, places = request.getfixturevalue(family), DROPPED_ENCODERS[family]
    config = AutoConfig.from_pretrained(backbone.name)
    config.update(dropout_rates(config, RATE))
    # Not `dropout`, which in DistilBERT is the rate of all other places.
    config.update(
        {name: 0.0 for name in ("attention_dropout", "attention_probs_dropout_prob") if hasattr(config, name)}
    )
    whole = AutoModel.from_pretrained(backbone.name, config=config, dtype=torch.float32).train()
    for name, module in whole.named_modules():
        if name.endswith(places.skipped):
            module.p = module.drop_prob = 0.0
        if name.endswith(places.more):
            module.register_forward_hook(lambda module, given, y: 1.5 * y)
    for row in encode_dropped(backbone):
        packed = backbone.pack([row])
        found = backbone.bert(packed, adapt(backbone, packed.lengths))
        with torch.no_grad():
            wanted = whole(packed.ids[None]).last_hidden_state[0]
        torch.testing.assert_close(found, wanted, atol=2e-5, rtol=1e-4)


@pytest.mark.usefixtures("scaled")
@pytest.mark.parametrize("family", ["t5", "t5_gated", "mt5", "umt5"])
def test_a_t5_has_it_where_transformers_has_it(family: str, request: pytest.FixtureRequest):
    """Without that of attention weights, of inner states and of the decoder's embeddings. The last one, before the
    output layer, is the output's."""
    backbone: Backbone = request.getfixturevalue(family)
    whole: Any = AutoModelForSeq2SeqLM.from_pretrained(backbone.name, dtype=torch.float32).train()
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


@pytest.mark.parametrize(
    ("family", "preset"),
    cover(
        {"family": HEADS.families, "preset": ["compacter", "lora", "prefix", "bitfit", "unipelt-apl", "adapterdrop"]}
    ),
)
def test_the_answers_are_those_from_the_start(family: str, preset: str, request: pytest.FixtureRequest):
    """Without dropout, and so are the gradients: states of the lower blocks have none."""
    backbone: Backbone = request.getfixturevalue(family)
    model = HEADS.create(backbone, preset, **({} if preset == "adapterdrop" else {"first_block": "1"})).eval()
    rows = encode(backbone)
    packed, states = backbone.pack(rows), model.lower_blocks.states(rows)
    found = []
    for given in (None, states):
        model.zero_grad()
        logits = model(packed, given)
        logits.square().sum().backward()
        found.append([logits, *(parameter.grad for parameter in model.parameters() if parameter.grad is not None)])
    for whole, upper in zip(*found, strict=True):
        torch.testing.assert_close(upper, whole, rtol=1e-4, atol=1e-4)


def test_adapters_from_the_first_block_on_have_none(bert: Backbone):
    """Also those that change the norm of the embeddings."""
    assert all(HEADS.create(bert, preset).lower_blocks is None for preset in ("compacter", "bitfit"))


def test_rows_are_computed_once(bert: Backbone, monkeypatch: pytest.MonkeyPatch):
    """In any order and company, as often as they fit; the others every time."""
    lengths = list[int]()
    advance = Bert.advance

    def counted(self: Bert, x: torch.Tensor, packed: Packed, *rest: object) -> torch.Tensor:
        lengths.extend(packed.lengths)
        return advance(self, x, packed, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(Bert, "advance", counted)
    rows = encode(bert)
    kept = LowerBlocks(bert, 1)
    first = kept.states(rows)
    again = kept.states([*rows[::-1], rows[0]])
    assert lengths == [len(row) for row in rows]
    assert torch.equal(again[-len(rows[0]) :], first[: len(rows[0])])
    lengths.clear()
    none = LowerBlocks(bert, 1, max_bytes=0)
    torch.testing.assert_close(none.states(rows), first)
    none.states(rows)
    assert lengths == 2 * [len(row) for row in rows]


def test_a_training_computes_its_rows_once(make_run: MakeRun, monkeypatch: pytest.MonkeyPatch):
    """Those that train and those that validate, in all epochs."""
    asked, computed = list[int](), list[int]()
    states, compute = LowerBlocks.states, LowerBlocks._compute
    monkeypatch.setattr(LowerBlocks, "states", lambda self, rows: asked.append(len(rows)) or states(self, rows))
    monkeypatch.setattr(LowerBlocks, "_compute", lambda self, rows: computed.append(len(rows)) or compute(self, rows))
    learn(prepare(make_run("classification", "lora", overrides={"first_block": "1"}, epochs=3)))
    assert sum(asked) >= 3 * sum(computed) > 0
