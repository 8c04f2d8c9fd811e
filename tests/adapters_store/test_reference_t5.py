"""Every method on T5 against a naive float64 implementation on padded batches, written from the formulas of the papers.

It shares no code with the product but VeRA's random matrices and the shapes of its stacks: it reads the checkpoint's
tensors by their transformers names, builds every weight matrix, pads every row and masks, gives each query a prefix of
its own, and decodes each label string by itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from peltier_adapters.artifact.artifact import Artifact, read_artifact
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.generation import create_draft, generate
from peltier_adapters.inputs import encode_input
from peltier_adapters.presets.presets import PRESETS
from peltier_adapters.residency.bank import Banks
from peltier_adapters.spec import parts as spec
from peltier_adapters.spec.decoding import Decoding
from peltier_adapters.spec.maps import LphmMap
from peltier_backbone.backbone import Backbone
from peltier_backbone.text.packing import Encoded
from safetensors.torch import load_file
from torch import Tensor
from torch.nn.utils.rnn import pad_sequence
from transformers import T5ForConditionalGeneration

from tests.adapters_store.test_reference import ACTIVATIONS
from tests.support.cover import cover
from tests.support.vera import read_vera

MakeArtifact = Callable[..., bytes]
Case = tuple[str, dict[str, str]]  # a preset and overrides of its settings
Tokens = tuple[Tensor, Tensor | None]  # [rows, tokens, width] and which are real; None: decoder tokens, all real
TEXTS = ("good", "a bad film", "the plot was not very good , and the actor is dull", "is a film " * 25)
LABELS = ("good", "good film", "good film !", "bad plot", "dull")
NEW_TOKENS = 10
# How far float32 (2 ** -24 a rounding) carries a case's log-likelihoods is seen by evaluating its formulas in float32
# too: 1e-6 to 3e-5. The product rounds as often in another order, so its worst of 20 numbers is one more draw of that
# size. The least confusion of formulas, erf for tanh in GELU, moves them by 5e-4.
STRAY = 10
# A likelihood of several steps strays by 3e-5 at most, so two logits this far apart keep their order.
CERTAIN = 1e-4


@cache
def bucket(relative: int, num_buckets: int, farthest: int, *, both: bool) -> int:
    """Half of a direction's buckets hold one distance each; then bucket k of the other half begins at the distance
    exact * (farthest / exact) ** (k / logs), which is compared in whole numbers."""
    size = num_buckets // 2 if both else num_buckets
    distance = abs(relative) if both else max(-relative, 0)
    exact, logs = size // 2, size - size // 2
    begun = sum(distance**logs * exact**k >= exact**logs * farthest**k for k in range(1, logs))
    return (size if both and relative > 0 else 0) + (distance if distance < exact else exact + begun)


@cache
def buckets(width: int, num_buckets: int, *, both: bool) -> Tensor:
    """Of each key for each query, [queries, keys]."""
    places = range(width)
    return torch.tensor([[bucket(key - query, num_buckets, 128, both=both) for key in places] for query in places])


@dataclass
class Reference:
    """A pre-norm encoder-decoder and one adapter. `w` holds the checkpoint, `t` the adapter."""

    backbone: Backbone
    directory: Path
    artifact: Artifact | None = None
    dtype: torch.dtype = torch.float64

    def __post_init__(self) -> None:
        self.config = self.backbone.t5.config
        tensors, parts = (self.artifact.tensors, self.artifact.manifest.parts) if self.artifact else ({}, ())
        self.w = {name: t.to(self.dtype) for name, t in load_file(self.directory / "model.safetensors").items()}
        self.t = {name: t.to(self.dtype) for name, t in tensors.items()}
        self.parts: dict[str, Any] = {part.kind: part for part in parts}
        self.gates: dict[str, dict[tuple[int, ...], Tensor]] = {}
        read_vera(self.parts, self.t, self.config)
        self.t = {name: self.unskipped(name, tensor) for name, tensor in self.t.items()}

    def numbers(self, name: str) -> list[int]:
        """The blocks, attentions or norms that a tensor of a part with `skip` has, of those of the whole model."""
        encoder, decoder, skip = (
            self.config.num_layers,
            self.config.num_decoder_layers,
            self.parts[name.split(".")[0]].skip,
        )
        if name.startswith("norm."):
            final = [2 * encoder] if name == "norm.weight" else []
            own = [*range(2 * skip, 2 * encoder), *final]
            first = 2 * encoder + 1 + 3 * skip
            return [*own, *range(first, first + 3 * (decoder - skip) + len(final))]
        blocks = [*range(skip, encoder), *range(encoder + skip, encoder + decoder)]
        feed_forward = name in ("bias.intermediate", "bias.output") or name.endswith((".intermediate", ".ffn_output"))
        if name.startswith("bottleneck.") or feed_forward:
            return blocks
        return [*blocks, *range(encoder + decoder + skip, encoder + 2 * decoder)]

    def unskipped(self, name: str, tensor: Tensor) -> Tensor:
        """The tensor with NaN in the blocks that its part skips, which nothing may read."""
        kind = name.split(".")[0]
        if kind == "bottleneck" or name == "bias.lm_head" or not getattr(self.parts[kind], "skip", 0):
            return tensor
        numbers, axis = self.numbers(name), 1 if kind == "lora" else 0
        shape = list(tensor.shape)
        shape[axis] = max(self.config.num_norms, self.config.num_attentions)
        return torch.full(shape, torch.nan, dtype=self.dtype).index_copy(axis, torch.tensor(numbers), tensor)

    def acts(self, kind: str, number: int) -> bool:
        """Whether a part acts in attention or block `number`."""
        encoder, decoder = self.config.num_layers, self.config.num_decoder_layers
        place = number if number < encoder else (number - encoder) % decoder
        return kind in self.parts and place >= self.parts[kind].skip

    def __call__(self, rows: Sequence[Encoded], labels: Sequence[Sequence[int]]) -> Tensor:
        """Log-likelihoods [rows, labels], the end among the steps."""
        memory, columns = self.encode(rows), []
        for label in labels:
            ids = torch.tensor([[self.config.start_token_id, *label]] * len(rows))
            wanted = torch.tensor([*label, self.config.eos_token_id])
            steps = self.decode(ids, memory).log_softmax(-1)
            columns.append(steps[:, torch.arange(len(wanted)), wanted].sum(-1))
        return torch.stack(columns, 1)

    def write(self, rows: Sequence[Encoded]) -> tuple[Tensor, Tensor]:
        """The likeliest tokens [rows, steps], each step computed anew from the start, and their leads in logits."""
        memory, leads = self.encode(rows), []
        ids = torch.full((len(rows), 1), self.config.start_token_id)
        for _ in range(NEW_TOKENS):
            best = self.decode(ids, memory)[:, -1].topk(2)
            ids = torch.cat((ids, best.indices[:, :1]), 1)
            leads.append(best.values[:, 0] - best.values[:, 1])
        return ids[:, 1:], torch.stack(leads, 1)

    def encode(self, rows: Sequence[Encoded]) -> tuple[Tensor, Tensor]:
        """States after the final norm, soft prompts in front."""
        prompt = self.t.get("prompt.weight", self.zeros(0, self.config.hidden_size))
        embedded = [torch.cat((prompt, self.w["shared.weight"][list(row.ids)])) for row in rows]
        x = pad_sequence(embedded, batch_first=True)
        mask = torch.arange(x.shape[1]) < torch.tensor([len(row) for row in embedded])[:, None]
        bias = self.position_bias("encoder", x.shape[1]).masked_fill(~mask[:, None, None, :], -torch.inf)
        for i in range(self.config.num_layers):
            name = f"encoder.block.{i}.layer"
            h = self.norm(2 * i, f"{name}.0.layer_norm", x), mask
            y = self.attend(f"{name}.0.SelfAttention", i, h, h, bias)
            x = x + self.bottleneck("attention", i, (y, mask), x)
            h = self.norm(2 * i + 1, f"{name}.1.layer_norm", x), mask
            x = x + self.bottleneck("ffn", i, (self.feed_forward(f"{name}.1.DenseReluDense", i, h), mask), x)
        return self.norm(2 * self.config.num_layers, "encoder.final_layer_norm", x), mask

    def decode(self, ids: Tensor, memory: tuple[Tensor, Tensor]) -> Tensor:
        """Next-token logits [rows, tokens, vocab] of the tokens ids [rows, tokens]."""
        encoder, decoder, width = self.config.num_layers, self.config.num_decoder_layers, ids.shape[1]
        later = torch.ones(width, width).triu(1).bool()
        own = self.position_bias("decoder", width).masked_fill(later, -torch.inf)
        cross = self.zeros(*memory[1].shape).masked_fill(~memory[1], -torch.inf)[:, None, None]
        x = self.w["shared.weight"][ids]
        for i in range(decoder):
            name, block, norm = f"decoder.block.{i}.layer", encoder + i, 2 * encoder + 1 + 3 * i
            h = self.norm(norm, f"{name}.0.layer_norm", x), None
            y = self.attend(f"{name}.0.SelfAttention", block, h, h, own)
            x = x + self.bottleneck("attention", block, (y, None), x)
            h = self.norm(norm + 1, f"{name}.1.layer_norm", x), None
            x = x + self.attend(f"{name}.1.EncDecAttention", block + decoder, h, memory, cross)
            h = self.norm(norm + 2, f"{name}.2.layer_norm", x), None
            y = self.feed_forward(f"{name}.2.DenseReluDense", block, h)
            x = x + self.bottleneck("ffn", block, (y, None), x)
        h = self.norm(2 * encoder + 1 + 3 * decoder, "decoder.final_layer_norm", x), None
        untied = self.w.get("lm_head.weight")
        table = self.w["shared.weight"] * self.config.hidden_size**-0.5 if untied is None else untied
        return h[0] @ table.T + self.t.get("bias.lm_head", 0)

    def position_bias(self, stack: str, width: int) -> Tensor:
        """Of each key for each query, [heads, queries, keys]."""
        table = self.w[f"{stack}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"]
        return table[buckets(width, len(table), both=stack == "encoder")].permute(2, 0, 1)

    def attend(self, name: str, number: int, target: Tokens, source: Tokens, bias: Tensor) -> Tensor:
        """Attention of `target` to a prefix, which has no position and no bias, and to `source`."""
        prefix, none = self.parts.get("prefix"), self.zeros(self.config.num_attentions, 0, self.config.attention_size)
        prefix = prefix if self.acts("prefix", number) else None
        gated = prefix and (prefix.gated or "central_gate" in self.parts)
        gate = self.gate("prefix", (number,), target)[..., None] if gated else 1
        tables = {kind: self.t[f"prefix.{kind}"] if prefix else none for kind in ("keys", "values")}
        front_key, front_value = (
            self.heads((gate * tables[kind][number]).expand(*target[0].shape[:2], -1, -1))
            for kind in ("keys", "values")
        )  # [rows, queries, P, heads, head size]: with a gate a token, each query sees another prefix
        query = self.heads(self.linear(f"{name}.q", "query", number, target))
        key = self.heads(self.linear(f"{name}.k", "key", number, source))
        value = self.heads(self.linear(f"{name}.v", "value", number, source))
        front = torch.einsum("rqhd,rqphd->rhqp", query, front_key)
        scores = torch.cat((front, torch.einsum("rqhd,rkhd->rhqk", query, key) + bias), -1)
        front, rest = scores.softmax(-1).split([front.shape[-1], key.shape[1]], -1)
        context = torch.einsum("rhqp,rqphd->rqhd", front, front_value) + torch.einsum("rhqk,rkhd->rqhd", rest, value)
        return self.linear(f"{name}.o", "attention_output", number, (context.flatten(2), target[1]))

    def heads(self, x: Tensor) -> Tensor:
        return x.unflatten(-1, (self.config.num_heads, self.config.kv_size))

    def linear(self, name: str, site: str, number: int, tokens: Tokens) -> Tensor:
        """A frozen map of an attention, with BitFit's bias and LoRA."""
        target = site.removeprefix("attention_")
        lora = self.lora(target, number, tokens, target) if self.adapts(target, number) else 0
        return self.scale(site, number) * (tokens[0] @ self.w[f"{name}.weight"].T) + self.bias(site, number) + lora

    def scale(self, site: str, number: int) -> Tensor:
        """IA3's factor."""
        own = self.acts("scale", number) and f"scale.{site}" in self.t
        return self.t[f"scale.{site}"][number] if own else self.zeros(1) + 1

    def adapts(self, target: str, number: int) -> bool:
        return self.acts("lora", number) and target in self.parts["lora"].targets

    def lora(self, target: str, number: int, tokens: Tokens, label: str, half: int = 0) -> Tensor:
        """What LoRA adds to a map. Maps of other widths than an attention's have tensors of their own."""
        part, apart = self.parts["lora"], ["intermediate", "ffn_output"]
        apart += ["output"] if self.config.attention_size != self.config.hidden_size else []
        suffix = f".{target}" if target in apart else ""
        together = [one for one in part.targets if one not in apart]
        index = half if suffix else together.index(target), number
        gated = part.gated or "central_gate" in self.parts
        scale = self.gate("lora", index, tokens, label, suffix) if gated else part.alpha / part.rank
        return scale * (tokens[0] @ self.t[f"lora.down{suffix}"][index] @ self.t[f"lora.up{suffix}"][index])

    def bias(self, site: str, number: int) -> Tensor:
        own = self.acts("bias", number) and f"bias.{site}" in self.t
        return self.t[f"bias.{site}"][number] if own else self.zeros(1)

    def feed_forward(self, name: str, block: int, tokens: Tokens) -> Tensor:
        x, mask = tokens
        maps = [self.w[key] for key in (f"{name}.{map}.weight" for map in ("wi", "wi_0", "wi_1")) if key in self.w]
        inner = self.scale("intermediate", block) * (x @ torch.cat(maps).T) + self.bias("intermediate", block)
        if self.adapts("intermediate", block):
            labels = ["intermediate"] if len(maps) == 1 else ["intermediate.0", "intermediate.1"]
            own = [self.lora("intermediate", block, tokens, label, half) for half, label in enumerate(labels)]
            inner = inner + torch.cat(own, -1)
        if len(maps) == 1:
            inner = ACTIVATIONS["relu"](inner)
        else:
            activated, factor = inner.tensor_split(2, -1)
            inner = ACTIVATIONS["gelu_new"](activated) * factor
        inner = self.scale("activated", block) * inner
        lora = self.lora("ffn_output", block, (inner, mask), "ffn_output") if self.adapts("ffn_output", block) else 0
        return self.scale("output", block) * (inner @ self.w[f"{name}.wo.weight"].T) + self.bias("output", block) + lora

    def bottleneck(self, site: str, block: int, tokens: Tokens, residual: Tensor) -> Tensor:
        """y + up(act(down(x))) at a sub-layer's output y, of x = y or x = y + residual; the first `skip` blocks of each
        stack have none."""
        (y, mask), part, encoder = tokens, self.parts.get("bottleneck"), self.config.num_layers
        place = block if block < encoder else block - encoder
        if part is None or site not in part.sites or place < part.skip:
            return y
        index = part.sites.index(site), block - (part.skip if block < encoder else 2 * part.skip)
        x = y + residual if part.input == "sum" else y
        inner = ACTIVATIONS[part.activation](x @ self.matrix("down", index) + self.t["bottleneck.down.bias"][index])
        term = inner @ self.matrix("up", index) + self.t["bottleneck.up.bias"][index]
        return y + (self.gate("bottleneck", index, (x, mask), site) * term if part.gated else term)

    def matrix(self, side: str, index: tuple[int, int]) -> Tensor:
        """The map of one side as one dense matrix [in, out]."""
        names = {name: f"bottleneck.{side}.{name}" for name in ("weight", "left", "right", "rule")}
        own = {name: self.t[key][index] for name, key in names.items() if key in self.t}
        blocks = own["weight"] if "weight" in own else own["left"] @ own["right"]
        if self.parts["bottleneck"].map.kind in ("dense", "lowrank"):
            return blocks
        rule = own.get("rule", self.t.get("bottleneck.rule"))
        return torch.stack([torch.kron(a, b) for a, b in zip(rule, blocks, strict=True)]).sum(0)

    def gate(self, part: str, index: tuple[int, ...], tokens: Tokens, label: str = "", suffix: str = "") -> Tensor:
        """sigmoid(x w + b): over encoder tokens its mean over the row's real ones, [rows, 1, 1]; in the decoder each
        token's own, [rows, tokens, 1], as a mean over a text would see its future. LoRA and prefix may share one."""
        x, mask = tokens
        if "central_gate" in self.parts and part != "bottleneck":
            return self.central(part, index, tokens, label)
        weight, bias = (self.t[f"{part}.gate.{name}{suffix}"][index] for name in ("weight", "bias"))
        gates = torch.sigmoid(x @ weight + bias)
        if mask is None:
            return gates[..., None]
        mean = (gates * mask).sum(1) / mask.sum(1)
        self.gates.setdefault(f"{part}.{label}" if label else part, {})[index] = mean
        return mean[:, None, None]

    def central(self, part: str, index: tuple[int, ...], tokens: Tokens, label: str) -> Tensor:
        """softmax(relu(x w + b)) over (LoRA, prefix), of the mean over encoder tokens before the softmax."""
        (x, mask), column = tokens, ("lora", "prefix").index(part)
        scores = (x @ self.t["central_gate.weight"][index[-1]] + self.t["central_gate.bias"][index[-1]]).relu()
        if mask is None:
            return scores.softmax(-1)[..., column, None]
        mean = ((scores * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)).softmax(-1)[:, column]
        self.gates.setdefault(f"{part}.{label}" if label else part, {})[index] = mean
        return mean[:, None, None]

    def norm(self, index: int, name: str, x: Tensor) -> Tensor:
        """w x / rms(x), and BitFit's bias, which the two final norms do not have."""
        skip = getattr(self.parts.get("norm"), "skip", 0)
        own = "final" in name or int(name.split(".")[2]) >= skip
        weight = self.t["norm.weight"][index] if own and "norm.weight" in self.t else self.w[f"{name}.weight"]
        y = weight * x / (x.pow(2).mean(-1, keepdim=True) + self.config.norm_eps).sqrt()
        if "norm.bias" not in self.t or "final" in name or not own:
            return y
        return y + self.t["norm.bias"][index if skip else index - name.startswith("decoder")]

    def zeros(self, *shape: int) -> Tensor:
        return torch.zeros(shape, dtype=self.dtype)


@dataclass(frozen=True)
class Family:
    """A small random backbone, its checkpoint, its banks, and rows of other adapters to stand beside those checked."""

    backbone: Backbone
    directory: Path
    banks: Banks
    neighbours: list[Row]

    def among(self, artifact: Artifact, rows: Sequence[Encoded]) -> list[Row]:
        """The adapter's rows at the even places of a mixed batch."""
        resident = self.banks.add(artifact)
        return [row for pair in zip(rows, self.neighbours, strict=True) for row in (Row(pair[0], resident), pair[1])]

    def check(self, artifact: Artifact) -> None:
        """Rows in a mixed batch are those of the formulas, to float32 rounding; the adapter moves them far more."""
        rows = [encode_input(self.backbone, artifact.manifest.task, text) for text in TEXTS]
        labels = [self.backbone.tokenizer.ids(label) for label in LABELS]
        reference = Reference(self.backbone, self.directory, artifact)
        expected = reference(rows, labels)
        rounding = float((replace(reference, dtype=torch.float32)(rows, labels).double() - expected).abs().max())
        among = self.among(artifact, rows)
        outputs = forward(self.backbone, among, record_gates=True)[::2]
        found = torch.stack([output.logits for output in outputs]).double()
        torch.testing.assert_close(found, expected, atol=STRAY * rounding, rtol=0)
        bare = forward(self.backbone, [replace(row, bare=True) for row in among[::2]])
        assert float((torch.stack([output.logits for output in bare]) - expected).abs().amax(1).min()) > 1e-2
        layers = self.backbone.config.num_layers  # those of cross-attention, from here on, are not the encoder's
        gates = {
            label: torch.stack([mean for index, mean in means.items() if index[-1] < layers], 1)
            for label, means in reference.gates.items()
        }
        for row, output in enumerate(outputs):
            found_gates = {
                label: torch.tensor([mean for mean in means if mean is not None]).double()
                for label, means in (output.gates or {}).items()
            }
            wanted = {label: gate[row] for label, gate in gates.items()}
            torch.testing.assert_close(found_gates, wanted, atol=1e-5, rtol=0)


FAMILIES = ("t5", "t5_gated")


@pytest.fixture(scope="module", params=FAMILIES)
def family(request: pytest.FixtureRequest, make_artifact: MakeArtifact) -> Family:
    """T5 v1.0 (tied) and v1.1 (gated, untied, its attention narrower than its states)."""
    backbone, directory = (request.getfixturevalue(f"{request.param}{what}") for what in ("", "_directory"))
    banks = Banks(backbone)
    others: list[Case] = [("unipelt-apl", {"length": "5"}), ("prompt-r", {}), ("bitfit", {}), ("compacter", {"n": "2"})]
    made = (make_artifact(backbone, preset, overrides=overrides, seed=9, proved=False) for preset, overrides in others)
    residents = [banks.add(read_artifact(data, backbone)) for data in made]
    texts = [backbone.tokenizer.encode(text) for text in reversed(TEXTS)]
    return Family(backbone, directory, banks, [Row(*pair) for pair in zip(texts, residents, strict=True)])


PRESETS_ON_T5 = [preset.name for preset in PRESETS.values() if preset.t5 is not None]
CASES: list[Case] = [
    *((preset, {}) for preset in PRESETS_ON_T5),
    ("houlsby", {"bottleneck": "7", "activation": "swish", "norms": "false"}),
    ("houlsby", {"map": "phm", "n": "12", "bottleneck": "24", "gated": "true"}),
    ("pfeiffer", {"sites": "ffn,attention", "map": "lphm", "n": "2", "rank": "5", "gated": "true"}),
    ("adapterdrop", {"sites": "ffn", "map": "lowrank", "rank": "2", "gated": "true"}),
    ("pfeiffer-ffn", {"sites": "attention,ffn", "gated": "true", "map": "phm", "n": "2", "norms": "true"}),
    ("unipelt-apl-central", {"targets": "value,key", "input": "sum", "gated": "false"}),
    ("lowrank", {"rank": "3"}),
    ("phm", {"n": "2", "sites": "attention"}),
    ("compacter", {"n": "1", "rank": "4", "bottleneck": "5"}),
    ("compacter", {"n": "6", "bottleneck": "12", "skip": "1"}),
    ("compacter++", {"norms": "false", "gated": "true", "activation": "gelu"}),
    ("lora", {"targets": "value,key,query", "rank": "3", "alpha": "0.5"}),
    ("lora", {"targets": "key,value", "gated": "true"}),
    ("lora", {"targets": "all-linear", "rank": "2"}),
    ("lora", {"targets": "all-linear", "first_block": "1"}),
    ("lora", {"targets": "output,ffn_output,query,intermediate", "gated": "true"}),
    ("unipelt-apl", {"targets": "value,output,key,query", "gated": "false", "alpha": "3"}),
    ("prefix", {"length": "1", "gated": "true"}),
    ("prefix", {"length": "17"}),
    ("prompt-r", {"length": "100"}),
    ("bitfit", {"sites": "key,intermediate"}),
    ("compacter", {"first_block": "1"}),
    ("lora", {"first_block": "1", "gated": "true"}),
    ("prefix", {"first_block": "1"}),
    ("bitfit", {"first_block": "1"}),
    ("unipelt-apl-central", {"first_block": "1", "norms": "true"}),
    ("unipelt-ap", {"gated": "false"}),
    ("unipelt-ap", {"sites": "attention,ffn", "length": "3", "norms": "true"}),
    ("unipelt-apl", {"gated": "false"}),
    ("unipelt-apl", {"length": "3", "rank": "2", "bottleneck": "6", "targets": "key,query", "map": "lphm", "n": "2"}),
]
# Only where the encoder is deeper than the decoder, or attention as wide as the states.
T5_CASES: list[Case] = [
    ("adapterdrop", {"skip": "2"}),
    ("unipelt-apl-central", {"targets": "output,key", "gated": "false"}),
]
# The gated family has other maps: two halves before the activation, and an attention of another width.
ON_MAPS = {"bias", "lora", "prefix", "scale", "vera"}
FORMULAS = cover(
    {"family": FAMILIES, "case": CASES + T5_CASES},
    where=lambda family, case: family == "t5" or case not in T5_CASES,
    pairs=[lambda family, case: (case[0], family) if not case[1] and ON_MAPS & {*PRESETS[case[0]].parts} else None],
)


@pytest.mark.parametrize(
    ("family", "preset", "overrides"), [(family, *case) for family, case in FORMULAS], indirect=["family"], ids=str
)
def test_a_method_is_its_formula(preset: str, overrides: dict[str, str], family: Family, make_artifact: MakeArtifact):
    """Every preset, and other settings of it."""
    data = make_artifact(family.backbone, preset, overrides=overrides, labels=LABELS, max_length=100, proved=False)
    family.check(read_artifact(data, family.backbone))


def test_parts_act_together_as_their_formulas(family: Family, make_artifact: MakeArtifact):
    """All parts at once: soft prompts count in gates and positions, prefixes and biases do not stand in their way."""
    parts: spec.Parts = (
        spec.PromptSpec(length=6),
        spec.PrefixSpec(length=4, gated=True),
        spec.LoraSpec(targets=("value", "query", "key"), rank=2, alpha=3.0, gated=True),
        spec.BottleneckSpec(
            sites=("ffn", "attention"), size=6, activation="swish", map=LphmMap(n=2, rank=3), gated=True, skip=1
        ),
        spec.BiasSpec(sites=("lm_head", "query", "key", "value", "attention_output", "intermediate", "output")),
        spec.NormSpec(),
    )
    manifest = read_artifact(make_artifact(family.backbone, "prefix", labels=LABELS), family.backbone).manifest
    generator = torch.Generator().manual_seed(3)
    shapes = spec.tensor_shapes(parts, family.backbone.config)
    tensors = {name: 0.3 * torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    tensors["norm.weight"] += 1
    family.check(Artifact(manifest.model_copy(update={"parts": parts}), tensors, f"sha256:{1:064}"))


@pytest.mark.parametrize(
    ("family", "preset"), cover({"family": FAMILIES, "preset": PRESETS_ON_T5}), indirect=["family"]
)
def test_a_text_is_written_step_by_step(preset: str, family: Family, make_artifact: MakeArtifact):
    """Greedily: each token is the likeliest of the formulas, as far as that is certain."""
    data = make_artifact(family.backbone, preset, task_type="text2text", seed=4, proved=False)
    artifact = read_artifact(data, family.backbone)
    rows = [encode_input(family.backbone, artifact.manifest.task, text) for text in TEXTS]
    tokens, leads = Reference(family.backbone, family.directory, artifact).write(rows)
    assert float((leads > CERTAIN).double().mean()) > 0.9, "the checkpoint is too undecided to compare"
    drafts = [create_draft(family.backbone, row, Decoding(NEW_TOKENS)) for row in family.among(artifact, rows)]
    generate(family.backbone, drafts, max_rows=5)
    for draft, wanted, lead in zip(drafts[::2], tokens.tolist(), leads.tolist(), strict=True):
        certain = [*[one > CERTAIN for one in lead], False].index(False)
        end = [*wanted, family.backbone.t5.config.eos_token_id].index(family.backbone.t5.config.eos_token_id)
        assert draft.ids[:certain] == wanted[: min(certain, end)]


def test_the_reference_is_the_real_backbone(family: Family):
    """Without an adapter the formulas are transformers' model, over distances beyond the last bucket."""
    backbone = family.backbone
    rows = [backbone.tokenizer.encode(text) for text in (*TEXTS[:3], "is a film " * 60)]
    ids, mask = (
        pad_sequence([torch.tensor(value) for value in values], batch_first=True)
        for values in ([row.ids for row in rows], [[1] * len(row) for row in rows])
    )
    written = torch.tensor([[0, *backbone.tokenizer.ids("the plot was dull " * 40)]] * len(rows))
    model = T5ForConditionalGeneration.from_pretrained(family.directory)
    with torch.inference_mode():
        expected = model.double().eval()(input_ids=ids, attention_mask=mask, decoder_input_ids=written).logits
    reference = Reference(backbone, family.directory)
    found = reference.decode(written, reference.encode(rows))
    # transformers takes the mean squares of norms in float32, whatever the model is in.
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=0)
