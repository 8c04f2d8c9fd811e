"""Every method against a naive float64 implementation on padded batches, written from the formulas of the papers.

It shares no code with the product but VeRA's random matrices and the shapes of its stacks: it reads the checkpoint's
tensors by their transformers names, builds every weight matrix, pads every row and masks.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from peltier_adapters.artifact.artifact import Artifact, read_artifact
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.inputs import encode_input
from peltier_adapters.residency.bank import Banks
from peltier_backbone.backbone import Backbone
from peltier_backbone.text.packing import Encoded
from safetensors.torch import load_file
from torch import Tensor
from torch.nn import functional as F

from tests.support.cover import cover
from tests.support.levels import LEVELS, forced_level, reloaded
from tests.support.vera import read_vera

TEXTS = ("good", "a bad film", "the plot was not very good , and the actor is dull", "is a is a is a is a is a film")
ACTIVATIONS = {
    "relu": lambda x: x.clamp(min=0),
    "gelu": lambda x: 0.5 * x * (1 + torch.erf(x / 2**0.5)),
    "gelu_new": lambda x: 0.5 * x * (1 + torch.tanh((2 / torch.pi) ** 0.5 * (x + 0.044715 * x**3))),
    "swish": lambda x: x * torch.sigmoid(x),
}


@dataclass
class Reference:
    """A post-LN encoder and one adapter. `w` holds the checkpoint, `t` the adapter, both float64."""

    backbone: Backbone
    artifact: Artifact
    directory: Path

    def __post_init__(self) -> None:
        self.config = self.backbone.config
        self.w = {name: tensor.double() for name, tensor in load_file(self.directory / "model.safetensors").items()}
        self.parts: dict[str, Any] = {part.kind: part for part in self.artifact.manifest.parts}
        self.gates: dict[str, list[Tensor]] = {}
        self.read({name: tensor.double() for name, tensor in self.artifact.tensors.items()})

    def read(self, tensors: dict[str, Tensor]) -> None:
        """Takes the adapter's tensors, in float64."""
        self.t = dict(tensors)
        read_vera(self.parts, self.t, self.config)
        self.t = {name: self.unskipped(name, tensor) for name, tensor in self.t.items()}

    def unskipped(self, name: str, tensor: Tensor) -> Tensor:
        """The tensor with NaN in the layers that its part skips, which nothing may read."""
        part = self.parts[name.split(".")[0]]
        skip = getattr(part, "skip", 0)
        if not skip or name in ("bottleneck.rule", "bias.pooler"):
            return tensor
        axis = 1 if part.kind in ("bottleneck", "lora") else 0
        absent = list(tensor.shape)
        absent[axis] = self.first_norm(skip) if part.kind == "norm" else skip
        return torch.cat((torch.full(absent, torch.nan, dtype=torch.float64), tensor), axis)

    def acts(self, part: str, i: int) -> bool:
        return part in self.parts and i >= self.parts[part].skip

    def __call__(self, rows: list[Encoded]) -> Tensor:
        """Logits, [rows, outputs]."""
        lengths = torch.tensor([len(row) for row in rows])
        width = int(lengths.max())
        self.mask = torch.arange(width) < lengths[:, None]  # [rows, width]
        ids = torch.tensor([[*row.ids, *[0] * (width - len(row))] for row in rows])
        types = torch.tensor([[*row.types, *[0] * (width - len(row))] for row in rows])
        places = torch.arange(width) + (2 if self.config.family == "roberta" else 0)
        tables = (("word", ids), ("position", places), ("token_type", types))
        x = sum(self.w[f"embeddings.{name}_embeddings.weight"][index] for name, index in tables)
        h = self.norm(0, x)
        for layer in range(self.config.num_layers):
            h = self.layer(layer, h)
        return self.head(h)

    def layer(self, i: int, h: Tensor) -> Tensor:
        name = f"encoder.layer.{i}"
        query = self.linear(f"{name}.attention.self.query", "query", i, h)
        key = self.linear(f"{name}.attention.self.key", "key", i, h)
        value = self.linear(f"{name}.attention.self.value", "value", i, h)
        context = self.attend(i, query, key, value, h)
        u = self.linear(f"{name}.attention.output.dense", "attention_output", i, context)
        a = self.norm(2 * i + 1, self.bottleneck("attention", i, u, h) + h)
        inner = self.scale("activated", i) * ACTIVATIONS["gelu"](
            self.linear(f"{name}.intermediate.dense", "intermediate", i, a)
        )
        f = self.linear(f"{name}.output.dense", "output", i, inner)
        return self.norm(2 * i + 2, self.bottleneck("ffn", i, f, a) + a)

    def linear(self, name: str, site: str, i: int, x: Tensor, half: int | None = None) -> Tensor:
        """A frozen map with the task's own bias (BitFit) and LoRA, whose product is merged into the map unless it has
        a gate; or one half of its columns, which has a LoRA of its own."""
        own = self.acts("bias", i) and f"bias.{site}" in self.t
        weight, bias = self.frozen(name, site, i)
        scale = self.scale(site, i).expand(len(weight))
        weight, bias = weight.T * scale, self.t[f"bias.{site}"][i] if own else bias * scale
        if half is not None:
            weight, bias = weight.chunk(2, 1)[half], bias.chunk(2)[half]
        target = {"attention_output": "output", "output": "ffn_output"}.get(site, site)
        lora = self.parts.get("lora")
        if lora is None or target not in lora.targets or not self.acts("lora", i):
            return x @ weight + bias
        apart = target in ("intermediate", "ffn_output")
        suffix = f".{target}" if apart else ""
        k = (
            half or 0
            if apart
            else [one for one in lora.targets if one not in ("intermediate", "ffn_output")].index(target)
        )
        added = self.t[f"lora.down{suffix}"][k, i] @ self.t[f"lora.up{suffix}"][k, i]
        label = target if half is None else f"{target}.{half}"
        if lora.gated or "central_gate" in self.parts:
            return x @ weight + bias + self.gate("lora", (k, i), x, label, suffix) * (x @ added)
        return x @ (weight + lora.alpha / lora.rank * added) + bias

    def scale(self, site: str, i: int) -> Tensor:
        """IA3's factor."""
        own = self.acts("scale", i) and f"scale.{site}" in self.t
        return self.t[f"scale.{site}"][i] if own else torch.ones(1, dtype=torch.float64)

    def frozen(self, name: str, site: str, i: int) -> tuple[Tensor, Tensor]:
        """The weight and bias of a map."""
        return self.w[f"{name}.weight"], self.w[f"{name}.bias"]

    def visible(self, i: int) -> Tensor:
        """Which of its keys each query sees, broadcast to [rows, queries, keys]."""
        return self.mask[:, None, :]

    def attend(self, i: int, query: Tensor, key: Tensor, value: Tensor, h: Tensor) -> Tensor:
        rows, heads, size = len(h), self.config.num_heads, self.config.hidden_size // self.config.num_heads
        visible = self.visible(i)
        prefix = self.parts.get("prefix")
        if prefix is not None and self.acts("prefix", i):
            scale = torch.ones(rows, 1, 1, dtype=torch.float64)
            if prefix.gated or "central_gate" in self.parts:
                scale = self.gate("prefix", (i,), h)
            key = torch.cat((scale * self.t["prefix.keys"][i], key), 1)
            value = torch.cat((scale * self.t["prefix.values"][i], value), 1)
            visible = F.pad(visible, (prefix.length, 0), value=True)
        query, key, value = (x.view(rows, -1, heads, size).transpose(1, 2) for x in (query, key, value))
        scores = query @ key.transpose(2, 3) / size**0.5
        weights = scores.masked_fill(~visible[:, None], float("-inf")).softmax(-1)
        return (weights @ value).transpose(1, 2).reshape(rows, -1, heads * size)

    def bottleneck(self, site: str, i: int, y: Tensor, residual: Tensor) -> Tensor:
        part = self.parts.get("bottleneck")
        if part is None or site not in part.sites or not self.acts("bottleneck", i):
            return y
        s = part.sites.index(site)
        x = y if part.input == "output" else y + residual
        if part.input == "normed":
            x = self.norm(2 * i + (1 if site == "attention" else 2), x)
        inner = ACTIVATIONS[part.activation](x @ self.matrix("down", s, i) + self.t["bottleneck.down.bias"][s, i])
        term = inner @ self.matrix("up", s, i) + self.t["bottleneck.up.bias"][s, i]
        return y + (self.gate("bottleneck", (s, i), x, site) * term if part.gated else term)

    def matrix(self, side: str, s: int, i: int) -> Tensor:
        """The map of one side as one dense matrix [in, out]."""
        kind = self.parts["bottleneck"].map.kind
        own = {name: self.t.get(f"bottleneck.{side}.{name}") for name in ("weight", "left", "right", "rule")}
        own = {name: tensor[s, i] for name, tensor in own.items() if tensor is not None}
        if kind == "dense":
            return own["weight"]
        if kind == "lowrank":
            return own["left"] @ own["right"]
        rule = own.get("rule", self.t.get("bottleneck.rule"))
        blocks = own["weight"] if kind == "phm" else own["left"] @ own["right"]
        return sum(torch.kron(a, b) for a, b in zip(rule, blocks, strict=True))

    def gate(self, part: str, index: tuple[int, ...], x: Tensor, label: str = "", suffix: str = "") -> Tensor:
        """The mean over a row's real tokens of sigmoid(x w + b), [rows, 1, 1]; or the part's share of the central
        gate, softmax(mean relu(x w + b)) over (LoRA, prefix)."""
        if "central_gate" in self.parts and part != "bottleneck":
            layer = index[-1]
            scores = (x @ self.t["central_gate.weight"][layer] + self.t["central_gate.bias"][layer]).relu()
            means = (scores * self.mask[:, :, None]).sum(1) / self.mask.sum(1, keepdim=True)
            mean = means.softmax(-1)[:, ("lora", "prefix").index(part)]
        else:
            weight, bias = (self.t[f"{part}.gate.{name}{suffix}"][index] for name in ("weight", "bias"))
            scores = torch.sigmoid(x @ weight + bias)
            mean = (scores * self.mask).sum(1) / self.mask.sum(1)
        self.gates.setdefault(f"{part}.{label}" if label else part, []).append(mean)
        return mean[:, None, None]

    def frozen_norm(self, index: int) -> tuple[Tensor, Tensor]:
        """The weight and bias of a norm."""
        layer, site = divmod(index - 1, 2)
        name = (
            f"encoder.layer.{layer}.{('attention.output', 'output')[site]}.LayerNorm"
            if index
            else "embeddings.LayerNorm"
        )
        return self.w[f"{name}.weight"], self.w[f"{name}.bias"]

    def first_norm(self, skip: int) -> int:
        """The first norm after the first `skip` blocks."""
        return 2 * skip + 1 if skip else 0

    def norm(self, index: int, x: Tensor) -> Tensor:
        weight, bias = self.frozen_norm(index)
        own = "norm" in self.parts and index >= self.first_norm(self.parts["norm"].skip)
        weight = self.t["norm.weight"][index] if own and "norm.weight" in self.t else weight
        bias = self.t["norm.bias"][index] if own and "norm.bias" in self.t else bias
        centred = x - x.mean(-1, keepdim=True)
        return weight * centred / (centred.pow(2).mean(-1, keepdim=True) + self.config.norm_eps).sqrt() + bias

    def head(self, h: Tensor) -> Tensor:
        head = self.parts["head"]
        x = h[:, 0]
        if head.pooling == "mean":
            x = (h * self.mask[:, :, None]).sum(1) / self.mask.sum(1, keepdim=True)
        if head.pooling == "pooler":
            bias = self.t.get("bias.pooler", self.w["pooler.dense.bias"])
            x = torch.tanh(x @ self.w["pooler.dense.weight"].T + bias)
        if head.hidden:
            x = torch.tanh(x @ self.t["head.dense.weight"] + self.t["head.dense.bias"])
        return x @ self.t["head.weight"] + self.t["head.bias"]


class ModernReference(Reference):
    """A pre-norm encoder with rotary positions and local layers, and one adapter."""

    def __call__(self, rows: list[Encoded]) -> Tensor:
        lengths = torch.tensor([len(row) for row in rows])
        width = int(lengths.max())
        self.mask = torch.arange(width) < lengths[:, None]
        ids = torch.tensor([[*row.ids, *[0] * (width - len(row))] for row in rows])
        h = self.norm(0, self.w["embeddings.tok_embeddings.weight"][ids])
        for i in range(self.config.num_layers):
            h = self.layer(i, h)
        return self.head(self.norm(2 * self.config.num_layers, h))

    def layer(self, i: int, h: Tensor) -> Tensor:
        x = self.norm(2 * i, h) if i else h
        query, key, value = (self.linear("attn.Wqkv", site, i, x) for site in ("query", "key", "value"))
        context = self.attend(i, self.turn(i, query), self.turn(i, key), value, x)
        u = self.linear("attn.Wo", "attention_output", i, context)
        a = h + self.bottleneck("attention", i, u, h)
        normed = self.norm(2 * i + 1, a)
        activated, factor = (self.linear("mlp.Wi", "intermediate", i, normed, half) for half in (0, 1))
        f = self.linear("mlp.Wo", "output", i, ACTIVATIONS["gelu"](activated) * factor * self.scale("activated", i))
        return a + self.bottleneck("ffn", i, f, a)

    def frozen(self, name: str, site: str, i: int) -> tuple[Tensor, Tensor]:
        weight = self.w[f"layers.{i}.{name}.weight"]
        if name == "attn.Wqkv":
            weight = weight.chunk(3)[("query", "key", "value").index(site)]
        return weight, torch.zeros(len(weight), dtype=torch.float64)

    def turn(self, i: int, x: Tensor) -> Tensor:
        """Elements d and d + size / 2 of each head as a complex number, times e^(i p theta^(-2 d / size))."""
        size = self.config.hidden_size // self.config.num_heads
        theta = 10_000.0 if i % 3 else 160_000.0
        speeds = theta ** (-2 * torch.arange(size // 2, dtype=torch.float64) / size)
        turns = torch.polar(torch.ones(x.shape[1], size // 2).double(), torch.arange(x.shape[1])[:, None] * speeds)
        first, second = x.view(*x.shape[:2], -1, size).chunk(2, -1)
        turned = torch.complex(first, second) * turns[:, None]
        return torch.cat((turned.real, turned.imag), -1).flatten(2)

    def visible(self, i: int) -> Tensor:
        """Which of its keys each query sees, [rows, queries, keys]; a pad sees all tokens."""
        seen = self.mask[:, None, :].expand(-1, self.mask.shape[1], -1)
        places = torch.arange(self.mask.shape[1])
        near = ((places - places[:, None]).abs() <= 4) | ~self.mask[:, :, None]
        return seen & near if i % 3 else seen

    def first_norm(self, skip: int) -> int:
        return 2 * skip

    def frozen_norm(self, index: int) -> tuple[Tensor, Tensor]:
        names = {0: "embeddings.norm", 2 * self.config.num_layers: "final_norm"}
        own = f"layers.{index // 2}.{('attn_norm', 'mlp_norm')[index % 2]}"
        weight = self.w[f"{names.get(index, own)}.weight"]
        return weight, torch.zeros_like(weight)


CASES: list[tuple[str, dict[str, str]]] = [
    ("houlsby", {}),
    ("houlsby", {"bottleneck": "7", "activation": "gelu", "norms": "true"}),
    ("houlsby", {"map": "lowrank", "rank": "3"}),
    ("houlsby", {"map": "phm", "n": "2"}),
    ("houlsby", {"map": "phm", "n": "12", "bottleneck": "24"}),
    ("pfeiffer", {}),
    ("pfeiffer", {"sites": "ffn,attention", "norms": "true"}),
    ("pfeiffer", {"map": "lphm", "n": "2", "rank": "5", "gated": "true"}),
    ("compacter", {}),
    ("compacter", {"n": "1", "rank": "4", "bottleneck": "5"}),
    ("compacter", {"n": "2", "rank": "3", "bottleneck": "96"}),
    ("compacter", {"n": "6", "norms": "false", "sites": "attention"}),
    ("compacter++", {}),
    ("compacter++", {"pooling": "mean", "head_hidden": "true"}),
    ("compacter++", {"input": "normed"}),
    ("lora", {}),
    ("lora", {"targets": "value,output,key,query", "rank": "3", "alpha": "0.5"}),
    ("lora", {"targets": "output,key", "gated": "true"}),
    ("lora", {"targets": "all-linear", "rank": "3", "first_block": "1"}),
    ("lora", {"targets": "ffn_output,key,intermediate", "gated": "true"}),
    ("vera", {}),
    ("vera", {"targets": "all-linear", "rank": "3", "projection_seed": "7", "first_block": "1"}),
    ("vera", {"outer": "false", "rank": "5"}),
    ("prefix", {}),
    ("prefix", {"length": "1", "gated": "true"}),
    ("bitfit", {}),
    ("bitfit", {"sites": "key,intermediate"}),
    ("ia3", {}),
    ("ia3", {"sites": "query,intermediate,attention_output,output", "first_block": "1"}),
    ("unipelt-ap", {}),
    ("unipelt-ap", {"gated": "false", "pooling": "first"}),
    ("unipelt-apl", {}),
    ("unipelt-apl", {"gated": "false"}),
    ("unipelt-apl", {"norms": "true", "length": "3", "rank": "2", "bottleneck": "6"}),
    ("unipelt-ap-nogate", {}),
    ("unipelt-apl-nogate", {}),
    ("unipelt-apl-central", {}),
    ("unipelt-apl-central", {"gated": "false", "targets": "output,key,value", "input": "sum"}),
    ("pfeiffer-attention", {}),
    ("pfeiffer-ffn", {}),
    ("pfeiffer-ffn", {"input": "sum", "sites": "attention,ffn", "gated": "true", "norms": "true"}),
    ("adamix", {}),
    ("adamix-lora", {}),
    ("compacter", {"first_block": "1"}),
    ("houlsby", {"first_block": "2", "skip": "1", "norms": "true"}),
    ("lora", {"first_block": "2", "targets": "value,output"}),
    ("lora", {"first_block": "1", "gated": "true"}),
    ("prefix", {"first_block": "1"}),
    ("bitfit", {"first_block": "2"}),
    ("unipelt-apl", {"first_block": "1", "norms": "true"}),
    ("unipelt-apl-central", {"first_block": "2"}),
]


@pytest.fixture
def family(request: pytest.FixtureRequest) -> tuple[Backbone, Path]:
    """A small random backbone and its checkpoint's directory."""
    return request.getfixturevalue(request.param), request.getfixturevalue(f"{request.param}_directory")


@pytest.fixture
def kernels(request: pytest.FixtureRequest) -> Iterator[None]:
    """The native kernels of a level, or those of torch."""
    with forced_level(request.param):
        yield


KERNELS = [*LEVELS, "torch"]
# Without the one that reads a norm that ModernBERT does not have.
MODERN_CASES = [case for case in CASES if case[1].get("input") != "normed"]
MODERN_CASES += [("bitfit", {"sites": "query,value,attention_output"}), ("prefix", {"length": "5", "pooling": "mean"})]
# Each operation of an adapter is written for torch and in C. On ModernBERT they are those on BERT.
FORMULAS = cover(
    {"family": ("bert", "roberta"), "kernels": KERNELS, "case": CASES},
    pairs=[lambda kernels, case, **_: (kernels == "torch", str(case))],
)
FORMULAS += cover({"family": ("modernbert",), "kernels": KERNELS, "case": MODERN_CASES})


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize(
    ("family", "kernels", "preset", "overrides"),
    [(family, kernels, *case) for family, kernels, case in FORMULAS],
    indirect=["family", "kernels"],
    ids=str,
)
def test_a_method_is_its_formula(preset, overrides, family, make_artifact):
    """Logits and gates, to float32 rounding, also beyond ModernBERT's window; the body moves them far more."""
    backbone, directory = family
    data = make_artifact(backbone, preset, overrides=overrides, labels=("a", "b", "c"), proved=False)
    artifact = read_artifact(data, backbone)
    # Without norms after the sums, products of gated layers round more than in BERT.
    tolerance = 1e-4 if backbone.config.pre_norm else 2e-5
    check_method(_reference(backbone, artifact, directory), backbone, artifact, tolerance)


def _reference(backbone: Backbone, artifact: Artifact, directory: Path) -> Reference:
    kind = ModernReference if backbone.config.pre_norm else Reference
    return kind(backbone, artifact, directory)


def check_method(reference: Reference, backbone: Backbone, artifact: Artifact, tolerance: float) -> None:
    """Logits, gates and the effect of an adapter, by the kernels in use."""
    backbone = reloaded(backbone)
    encoded = [encode_input(backbone, artifact.manifest.task, text) for text in TEXTS]
    expected = reference(encoded)
    resident = Banks(backbone).add(artifact)
    outputs = forward(backbone, [Row(one, resident) for one in encoded], record_gates=True)
    found = torch.stack([output.logits for output in outputs]).double()
    torch.testing.assert_close(found, expected, atol=tolerance, rtol=tolerance)
    bare = forward(backbone, [Row(one, resident, bare=True) for one in encoded])
    assert max(float((one.logits - two).abs().max()) for one, two in zip(bare, expected, strict=True)) > 1e-2
    _same_gates(reference.gates, [output.gates for output in outputs])


def _same_gates(expected: dict[str, list[Tensor]], found: list[dict[str, list[float]] | None]) -> None:
    for row, gates in enumerate(found):
        assert (gates or {}).keys() == expected.keys()
        for label, layers in expected.items():
            assert gates is not None
            adapted = [gate for gate in gates[label] if gate is not None]
            torch.testing.assert_close(
                torch.tensor(adapted, dtype=torch.float64), torch.stack(layers)[:, row], atol=1e-5, rtol=0
            )


def test_pairs_are_read_as_pairs(bert: Backbone, bert_directory: Path, make_artifact: Any):
    """Token types of a pair reach the formulas."""
    artifact = read_artifact(make_artifact(bert, "unipelt-apl", inputs="pair"), bert)
    encoded = [encode_input(bert, artifact.manifest.task, (text, "a film")) for text in TEXTS]
    resident = Banks(bert).add(artifact)
    found = torch.stack([output.logits for output in forward(bert, [Row(one, resident) for one in encoded])])
    expected = Reference(bert, artifact, bert_directory)(encoded)
    torch.testing.assert_close(found.double(), expected, atol=2e-5, rtol=2e-5)


# transformers computes ModernBERT's angles in float32.
@pytest.mark.parametrize(
    ("family", "settings", "tolerance"),
    [("bert", {}, 1e-10), ("modernbert", {"head_hidden": "false"}, 1e-5)],
    indirect=["family"],
)
def test_the_reference_is_the_real_backbone(settings, tolerance, family, make_artifact):
    """With a LoRA of no effect the formulas above are transformers' model: the reference itself is checked."""
    from transformers import AutoModel

    backbone, directory = family
    artifact = read_artifact(make_artifact(backbone, "lora", overrides={"pooling": "first", **settings}), backbone)
    silent = {name: torch.zeros_like(t) if name == "lora.up" else t for name, t in artifact.tensors.items()}
    encoded = [backbone.tokenizer.encode(TEXTS[2])]
    reference = _reference(backbone, Artifact(artifact.manifest, silent, artifact.digest), directory)
    model = AutoModel.from_pretrained(directory).double().eval()
    with torch.inference_mode():
        hidden = model(torch.tensor([encoded[0].ids])).last_hidden_state[:, 0]
    expected = F.linear(hidden, reference.t["head.weight"].T, reference.t["head.bias"])
    torch.testing.assert_close(reference(encoded), expected, atol=tolerance, rtol=tolerance)


def test_a_prefix_is_seen_from_everywhere(modernbert: Backbone, modernbert_directory: Any, make_artifact: Any):
    """In local layers too, by tokens of a text of many windows."""
    data = make_artifact(modernbert, "prefix", overrides={"length": "3"}, max_length=96)
    artifact = read_artifact(data, modernbert)
    encoded = [encode_input(modernbert, artifact.manifest.task, "a good film " * 30)]
    expected = ModernReference(modernbert, artifact, modernbert_directory)(encoded)
    found = forward(modernbert, [Row(encoded[0], Banks(modernbert).add(artifact))])[0].logits
    torch.testing.assert_close(found.double()[None], expected, atol=2e-5, rtol=2e-5)
