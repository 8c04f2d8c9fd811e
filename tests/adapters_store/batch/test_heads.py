"""Many heads in one batch."""

from collections.abc import Callable

import pytest
import torch
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.heads import _copy_to_host, read_heads
from peltier_adapters.batch.row import Row
from peltier_adapters.ops import choice
from peltier_adapters.ops.torch import TORCH
from peltier_adapters.residency.bank import Banks, head_spec
from peltier_backbone.backbone import Backbone
from peltier_backbone.native.library import Library
from torch import Tensor

CPU = torch.device("cpu")
SERVED = choice.choose_backend(CPU, torch.float32)


@pytest.mark.parametrize("chosen", ["torch", "served"])
@pytest.mark.parametrize("family", ["bert", "roberta"])
def test_heads_together_answer_as_each_alone(family, chosen, make_artifact, request, monkeypatch):
    """With and without a layer, of every token, without a projection, two rows of one head, and rows of none."""
    backbone: Backbone = request.getfixturevalue(family)
    if chosen == "torch":
        monkeypatch.setattr(choice, "choose_backend", lambda device, dtype: TORCH)
    banks, drawn = Banks(backbone), [(seed, labels) for seed in range(2) for labels in (("a", "b"), ("a", "b", "c"))]
    files = [make_artifact(backbone, "lora", seed=seed, labels=labels) for seed, labels in drawn]
    files += [make_artifact(backbone, "lora", overrides={"pooling": "mean", "head_hidden": "true"})]
    residents = [banks.add(read_artifact(data, backbone)) for data in files]
    encoded = backbone.tokenizer.encode("a good film")
    rows = [Row(encoded, one) for one in (*residents, None, residents[0], residents[3])]
    vectors = torch.randn(len(rows), backbone.config.hidden_size, generator=torch.Generator().manual_seed(0))

    def pooled(pooling: str) -> Tensor:
        return vectors if pooling == "first" else vectors.tanh()

    backend = choice.choose_backend(CPU, torch.float32)
    with torch.inference_mode():
        alone = [
            read_heads([row], lambda kind, k=k: pooled(kind)[k : k + 1], backbone, backend)[0]
            for k, row in enumerate(rows)
        ]
        for number, (own, expected) in enumerate(zip(read_heads(rows, pooled, backbone, backend), alone, strict=True)):
            torch.testing.assert_close(own, expected, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(own, _plain(rows[number], pooled, number), rtol=1e-5, atol=1e-5)


def _plain(row: Row, pooled: Callable[[str], Tensor], number: int) -> Tensor:
    """The formula, from the artifact's own tensors."""
    if row.resident is None:
        return pooled("first")[number]
    spec, own = head_spec(row.resident.head), row.resident.head.layout.views(row.resident.head_slot.read())
    x = pooled(spec.pooling)[number]
    if spec.hidden:
        x = torch.tanh(x @ own["head.dense.weight"] + own["head.dense.bias"])
    return x @ own["head.weight"] + own["head.bias"]


@pytest.mark.parametrize("chosen", ["torch", "served"])
def test_heads_of_tokens_and_vectors_share_a_batch(chosen, bert, make_artifact, monkeypatch):
    """A head of every token has one output for each token of its row, one without a projection the vector itself."""
    if chosen == "torch":
        monkeypatch.setattr(choice, "choose_backend", lambda device, dtype: TORCH)
    kinds = {"token-classification": "single", "span": "pair", "embedding": "single", "classification": "single"}
    files = [make_artifact(bert, "lora", task_type=kind, inputs=inputs) for kind, inputs in kinds.items()]
    banks = Banks(bert)
    residents = [banks.add(read_artifact(data, bert)) for data in files]
    texts = ("a good film", "bad", "the plot was dull", "is the actor good ?")
    rows = [Row(bert.tokenizer.encode(text), one) for text in texts for one in (*residents, None)]
    lengths, generator = [row.num_inputs for row in rows], torch.Generator().manual_seed(0)
    states = torch.randn(sum(lengths), bert.config.hidden_size, generator=generator)
    own = states.split(lengths)
    vectors = torch.stack([one.mean(0) for one in own])
    with torch.inference_mode():
        found = read_heads(
            rows, lambda kind: states if kind == "tokens" else vectors, bert, choice.choose_backend(CPU, torch.float32)
        )
    for row, output, tokens, vector in zip(rows, found, own, vectors, strict=True):
        kind = "embedding" if row.resident is None else row.resident.task.type
        wanted = {"embedding": vector, "classification": vector}.get(kind, tokens)
        if row.resident is not None and kind != "embedding":
            tensors = row.resident.head.layout.views(row.resident.head_slot.read())
            wanted = wanted @ tensors["head.weight"] + tensors["head.bias"]
        torch.testing.assert_close(output, wanted, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("pooling", ["mean", "max"])
def test_rows_of_any_lengths_are_pooled_as_each_alone(pooling, bert, make_artifact):
    """A vector is that of the tokens of its own row."""
    resident = Banks(bert).add(read_artifact(make_artifact(bert, "lora", overrides={"pooling": pooling}), bert))
    rows = [Row(bert.tokenizer.encode(text), resident) for text in ("the plot was dull", "bad", "a good film")]
    for row, together in zip(rows, forward(bert, rows), strict=True):
        torch.testing.assert_close(together.logits, forward(bert, [row])[0].logits, rtol=1e-5, atol=1e-5)


@torch.inference_mode()
def test_all_heads_are_one_call(bert: Backbone, make_artifact: Callable[..., bytes], monkeypatch: pytest.MonkeyPatch):
    banks, drawn = Banks(bert), [(seed, labels) for seed in range(3) for labels in (("a", "b"), ("a", "b", "c"))]
    residents = [
        banks.add(read_artifact(make_artifact(bert, "lora", seed=seed, labels=labels), bert)) for seed, labels in drawn
    ]
    sizes: list[int] = []
    adapt = Library.adapt
    monkeypatch.setattr(Library, "adapt", lambda own, y, *rest: sizes.append(len(y)) or adapt(own, y, *rest))
    rows = [Row(bert.tokenizer.encode("bad"), one) for one in residents]
    read_heads(rows, lambda kind: torch.zeros(len(rows), bert.config.hidden_size), bert, SERVED)
    assert sizes == [6]


def test_the_host_waits_for_a_gpu_once(monkeypatch: pytest.MonkeyPatch):
    """The outputs of all heads come in one copy."""
    pieces = [torch.ones(3, 2), torch.zeros(1, 48)]
    copies: list[int] = []
    to_host = Tensor.cpu
    monkeypatch.setattr(Tensor, "cpu", lambda tensor: copies.append(tensor.numel()) or to_host(tensor))
    copied = _copy_to_host(pieces)
    assert copies == [3 * 2 + 48]
    assert all(torch.equal(one, other) for one, other in zip(copied, pieces, strict=True))


def test_a_wide_head_makes_no_other_row_wider(bert: Backbone, make_artifact: Callable[..., bytes]):
    """An output keeps the memory of its matrix, which is that of the wide head for rows of this head alone."""
    banks, tags = Banks(bert), [f"B-{number}" for number in range(200)]
    narrow = banks.add(read_artifact(make_artifact(bert, "lora", task_type="span", inputs="pair"), bert))
    wide = banks.add(read_artifact(make_artifact(bert, "lora", labels=tags, task_type="token-classification"), bert))
    encoded = bert.tokenizer.encode("a good film")
    rows = [Row(encoded, one) for one in (narrow, wide, None)]
    states = torch.randn(len(encoded) * len(rows), bert.config.hidden_size)
    with torch.inference_mode():
        outputs = read_heads(rows, lambda kind: states if kind == "tokens" else states[: len(rows)], bert, SERVED)
    kept = [output.untyped_storage().nbytes() // output.itemsize for output in outputs]
    assert kept == [2 * len(encoded), 200 * len(encoded), bert.config.hidden_size]
