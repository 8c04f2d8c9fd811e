"""The output layer of sparse embeddings in training."""

import random

import pytest
import torch
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.presets.presets import find_preset
from peltier_adapters.residency.bank import Banks
from peltier_backbone.backbone import Backbone
from peltier_backbone.text.packing import Encoded
from peltier_training.models.model import PairAdapter
from peltier_training.models.vocabulary import choose_rows, largest_logits

from tests.support.artifacts import MakeArtifact
from tests.support.small_tokenizers import TEXTS

LENGTHS = (3, 1, 5)


def test_gradients_are_those_of_the_tokens_with_the_largest_logits(bert: Backbone):
    """Those of torch, which keeps the logits of all tokens."""
    states = torch.randn(sum(LENGTHS), 48, generator=torch.Generator().manual_seed(0), requires_grad=True)
    other = states.detach().clone().requires_grad_()
    logits = other @ bert.bert.tokens.weight().T
    expected = torch.stack([own.amax(0) for own in torch.split(logits, LENGTHS)])
    found = largest_logits(states, LENGTHS, bert)
    torch.testing.assert_close(found, expected)
    for one in (found, expected):
        one.relu().log1p().square().sum().backward()
    torch.testing.assert_close(states.grad, other.grad)


def test_training_starts_at_the_words_of_a_text(bert: Backbone):
    """The largest logits of most texts are those of their words, although the backbone is random."""
    draw, words = random.Random(0), sorted(set(" ".join(TEXTS).split()))
    rows = [bert.tokenizer.encode(" ".join(draw.sample(words, 4))) for _ in range(64)]
    preset = find_preset("lora")
    settings = preset.settings({"pooling": "tokens", "head_terms": "8"}, bert.config)
    model = PairAdapter(bert, preset.compose(settings, bert.config, outputs=48), settings, seed=0).eval()
    model.start(rows)
    with torch.no_grad():
        logits = model(bert.pack(rows)).flatten(0, 1)
    best = logits.argmax(-1).tolist()
    assert sum(term in row.ids for term, row in zip(best, rows, strict=True)) >= 56
    assert 0 < (logits > 0).sum(-1).float().mean() < len(logits[0]) / 2


@pytest.mark.parametrize("num_pairs", [1, 100, 200, 500])
def test_the_start_reads_both_texts_of_pairs(num_pairs: int):
    """Of rows that are as many and as long as there may be."""
    rows = [Encoded((5 + place % 2,) * 4, (0,) * 4) for place in range(2 * num_pairs)]
    chosen = choose_rows(rows)
    assert {row.ids[0] for row in chosen} == {5, 6}
    assert len(chosen) <= 256
    long = [Encoded((5,) * 8192, (0,) * 8192)] * 100
    assert sum(map(len, choose_rows(long))) == 32_768


def test_the_logits_of_training_are_those_of_serving(bert: Backbone, make_artifact: MakeArtifact):
    """The terms of a served row are the largest of the vocabulary."""
    artifact = read_artifact(make_artifact(bert, "lora", task_type="sparse-embedding"), bert)
    rows = [bert.tokenizer.encode(text) for text in ("a good film", "bad")]
    resident = Banks(bert).add(artifact)
    served = forward(bert, [Row(row, resident) for row in rows])
    preset = find_preset("lora")
    settings = preset.settings({"pooling": "tokens", "head_terms": "24"}, bert.config)
    model = PairAdapter(bert, artifact.manifest.parts, settings, seed=0).eval()
    with torch.no_grad():
        for name, tensor in model.served().items():
            tensor.copy_(artifact.tensors[name])
        logits = model(bert.pack(rows))[0]
    for output, own in zip(served, logits, strict=True):
        values, terms = own.topk(24)
        torch.testing.assert_close(output.logits[:, 1], values)
        assert output.logits[:, 0].int().tolist() == terms.tolist()
