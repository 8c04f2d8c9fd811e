"""Whole batches with Triton's kernels, compared with torch."""

from collections.abc import Sequence

import pytest
import torch
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row, RowOutput
from peltier_adapters.generation import create_draft, generate
from peltier_adapters.gpu.backend import TritonBackend
from peltier_adapters.inputs import encode_input
from peltier_adapters.ops import choice
from peltier_adapters.ops.backend import Backend
from peltier_adapters.ops.torch import TORCH
from peltier_adapters.residency.bank import Banks
from peltier_adapters.spec.decoding import Decoding
from peltier_backbone.backbone import Backbone

TEXTS = ("a good film", "bad", "the plot was not very good , and the actor is dull")
# The interpreter takes seconds for each adapter of a T5; its ops are also compared one by one.
BATCHES = (
    ("bert", ("pfeiffer", "lowrank", "compacter", "bitfit", "ia3", "unipelt-apl", "unipelt-apl-central")),
    ("modernbert", ("unipelt-apl",)),
    ("mpnet", ("unipelt-apl",)),
    # Its batches are computed by torch, and its heads by the kernels.
    ("deberta", ("bitfit",)),
    pytest.param("nomic_bert", ("unipelt-apl",), marks=pytest.mark.slow),
    ("t5", ("prompt-r", "unipelt-apl")),
    pytest.param("t5", ("compacter", "unipelt-apl", "prompt-r", "bitfit"), marks=pytest.mark.slow),
    pytest.param("umt5", ("unipelt-apl",), marks=pytest.mark.slow),
)
HEADS = (
    {"task_type": "token-classification", "labels": ("O", "B-a", "I-a")},
    {"task_type": "token-classification", "labels": ("O", "B-a", "I-a"), "normed_head": True},
    {"normed_head": True},
    {"task_type": "embedding"},
    {"task_type": "sparse-embedding"},
    {"task_type": "multi-vector-embedding"},
    {"task_type": "embedding", "overrides": {"pooling": "max", "head_projection": "true"}},
)
# Every second preset leaves the first block of each stack alone.
UPPER = {"first_block": "1"}
TRITON = TritonBackend(torch.device("cpu"), torch.float32)


@pytest.mark.parametrize(("family", "presets"), BATCHES)
def test_a_mixed_batch_answers_as_by_torch(family, presets, make_artifact, request, monkeypatch):
    """Adapters of every kind of part and head beside a row of none: the same logits within 1e-5, and the same gates."""
    backbone: Backbone = request.getfixturevalue(family)
    files = [
        make_artifact(backbone, name, proved=False, labels=("good", "bad"), overrides=UPPER if number % 2 else {})
        for number, name in enumerate(presets)
    ]
    if not backbone.config.generates:
        files += [make_artifact(backbone, "lora", proved=False, **options) for options in HEADS]

    def answers(chosen: Backend) -> Sequence[RowOutput]:
        monkeypatch.setattr(choice, "choose_backend", lambda device, dtype: chosen)
        banks = Banks(backbone)
        residents = [banks.add(read_artifact(data, backbone)) for data in files]
        bare = [] if backbone.config.generates else [Row(backbone.tokenizer.encode("bad"))]
        texts = (TEXTS[number % len(TEXTS)] for number in range(len(residents)))
        rows = [Row(encode_input(backbone, own.task, text), own) for own, text in zip(residents, texts, strict=True)]
        return forward(backbone, bare + rows, record_gates=True)

    plain = answers(TORCH)
    for own, expected in zip(answers(TRITON), plain, strict=True):
        torch.testing.assert_close(own.logits, expected.logits, rtol=1e-5, atol=1e-5)
        assert (own.gates is None) == (expected.gates is None)
        for label, gates in (own.gates or {}).items():
            assert gates == pytest.approx((expected.gates or {})[label], abs=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["t5", pytest.param("umt5", marks=pytest.mark.slow)])
def test_texts_are_written_as_by_torch(family, make_artifact, request, monkeypatch):
    """Each token attends to its adapter's prefix and to the tokens before it, in two texts of different lengths."""
    t5: Backbone = request.getfixturevalue(family)
    files = [make_artifact(t5, preset, proved=False, labels=("good", "bad")) for preset in ("unipelt-apl", "bitfit")]

    def texts(chosen: Backend) -> list[list[int]]:
        monkeypatch.setattr(choice, "choose_backend", lambda device, dtype: chosen)
        banks = Banks(t5)
        residents = [banks.add(read_artifact(data, t5)) for data in files]
        rows = [Row(encode_input(t5, own.task, text), own) for own, text in zip(residents, TEXTS, strict=False)]
        drafts = [create_draft(t5, row, Decoding(3)) for row in rows]
        generate(t5, drafts, max_rows=2)
        return [draft.ids for draft in drafts]

    assert texts(TRITON) == texts(TORCH)
