"""Where the gates of a T5's decoder stand: numbered ones are found at their own part, stack and block."""

from collections.abc import Callable
from dataclasses import replace

import pytest
import torch
from peltier_adapters.artifact.artifact import Artifact, read_artifact
from peltier_adapters.batch.row import Row
from peltier_adapters.residency.bank import Banks
from peltier_backbone.backbone import Backbone
from peltier_training.evaluate.decoder_gates import decoder_gates

TEXTS = ("a good film", "the plot was not very good , and the actor is dull", "bad")


@pytest.fixture
def artifact(t5: Backbone, make_artifact: Callable[..., bytes]) -> Artifact:
    """A UniPELT on a T5 of three and two blocks."""
    return read_artifact(make_artifact(t5, "unipelt-apl"), t5)


def rows_of(t5: Backbone, artifact: Artifact, num: int) -> list[Row]:
    resident = Banks(t5).add(artifact)
    return [Row(t5.tokenizer.encode(TEXTS[number % len(TEXTS)]), resident) for number in range(num)]


def test_each_gate_stands_at_its_block(t5: Backbone, artifact: Artifact):
    """Gates that read nothing are the sigmoids of their biases, all different: two decoder blocks come after three of
    the encoder, and two cross-attentions after both, which bottlenecks do not have."""
    numbered = {
        name: torch.linspace(-2, 2, tensor.numel()).view(tensor.shape) if name.endswith("gate.bias") else tensor * 0
        for name, tensor in artifact.tensors.items()
        if ".gate." in name
    }
    found = decoder_gates(t5, rows_of(t5, replace(artifact, tensors={**artifact.tensors, **numbered}), 3))
    prefix, (query, value), (ffn,) = (
        numbered[f"{part}.gate.bias"].sigmoid() for part in ("prefix", "lora", "bottleneck")
    )
    wanted = {
        "prefix, decoder": prefix[3:5],
        "prefix, cross-attention": prefix[5:],
        "lora.query, decoder": query[3:5],
        "lora.query, cross-attention": query[5:],
        "lora.value, decoder": value[3:5],
        "lora.value, cross-attention": value[5:],
        "bottleneck.ffn, decoder": ffn[3:],
    }
    assert found.keys() == wanted.keys()
    for name, gates in wanted.items():
        assert found[name] == pytest.approx(gates.tolist(), abs=1e-6)


def test_a_mean_is_over_all_batches(t5: Backbone, artifact: Artifact):
    """As many rows of each text as fill several batches have the mean of one row of each."""
    once, often = (decoder_gates(t5, rows_of(t5, artifact, num)) for num in (3, 99))
    assert once.keys() == often.keys()
    for name, gates in once.items():
        assert often[name] == pytest.approx(gates, abs=1e-5)
    alone = decoder_gates(t5, rows_of(t5, artifact, 1))
    assert alone["prefix, decoder"] != pytest.approx(once["prefix, decoder"], abs=1e-4)
