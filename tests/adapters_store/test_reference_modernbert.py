"""Every method on ModernBERT against a naive float64 implementation on padded batches: what differs from BERT."""

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
from torch import Tensor
from torch.nn import functional as F
from transformers import ModernBertModel

from tests.adapters_store.test_reference import ACTIVATIONS, CASES, KERNELS, TEXTS, Reference, check_method
from tests.adapters_store.test_reference import kernels as kernels
from tests.support.cover import cover

# Without the one that reads a norm that ModernBERT does not have.
OWN_CASES = [case for case in CASES if case[1].get("input") != "normed"]
OWN_CASES += [("bitfit", {"sites": "query,value,attention_output"}), ("prefix", {"length": "5", "pooling": "mean"})]
# The operations of an adapter are those on BERT, where each case runs with native kernels and with torch.
FORMULAS = cover({"kernels": KERNELS, "case": OWN_CASES})


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


@pytest.mark.usefixtures("kernels")
@pytest.mark.parametrize(
    ("kernels", "preset", "overrides"),
    [(kernels, *case) for kernels, case in FORMULAS],
    indirect=["kernels"],
    ids=str,
)
def test_a_method_is_its_formula(preset, overrides, modernbert, modernbert_directory, make_artifact):
    """Logits and gates are those of the float64 formulas, to float32 rounding, for texts longer than the window."""
    data = make_artifact(modernbert, preset, overrides=overrides, labels=("a", "b", "c"), proved=False)
    artifact = read_artifact(data, modernbert)
    # Without norms after the sums, products of gated layers round more than in BERT.
    check_method(ModernReference(modernbert, artifact, modernbert_directory), modernbert, artifact, 1e-4)


def test_the_reference_is_the_real_backbone(modernbert: Backbone, modernbert_directory: Any, make_artifact: Any):
    """With a LoRA of no effect the formulas above are transformers' model."""
    settings = {"pooling": "first", "head_hidden": "false"}
    artifact = read_artifact(make_artifact(modernbert, "lora", overrides=settings), modernbert)
    silent = {name: torch.zeros_like(t) if name == "lora.up" else t for name, t in artifact.tensors.items()}
    encoded = [modernbert.tokenizer.encode(TEXTS[2])]
    reference = ModernReference(modernbert, Artifact(artifact.manifest, silent, artifact.digest), modernbert_directory)
    model = ModernBertModel.from_pretrained(modernbert_directory).double().eval()
    with torch.inference_mode():
        hidden = model(torch.tensor([encoded[0].ids])).last_hidden_state[:, 0]
    expected = F.linear(hidden, reference.t["head.weight"].T, reference.t["head.bias"])
    # transformers computes angles in float32.
    torch.testing.assert_close(reference(encoded), expected, atol=1e-5, rtol=1e-5)


def test_a_prefix_is_seen_from_everywhere(modernbert: Backbone, modernbert_directory: Any, make_artifact: Any):
    """In local layers too, by tokens of a text of many windows."""
    data = make_artifact(modernbert, "prefix", overrides={"length": "3"}, max_length=96)
    artifact = read_artifact(data, modernbert)
    encoded = [encode_input(modernbert, artifact.manifest.task, "a good film " * 30)]
    expected = ModernReference(modernbert, artifact, modernbert_directory)(encoded)
    found = forward(modernbert, [Row(encoded[0], Banks(modernbert).add(artifact))])[0].logits
    torch.testing.assert_close(found.double()[None], expected, atol=2e-5, rtol=2e-5)
