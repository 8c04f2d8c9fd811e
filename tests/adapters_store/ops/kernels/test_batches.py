"""Whole batches with Triton's kernels, compared with torch."""

from collections.abc import Callable

import pytest
import torch
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.golden.inputs import encode_input
from peltier_adapters.ops import backend
from peltier_adapters.ops.torch import TORCH
from peltier_adapters.ops.triton import TritonBackend
from peltier_adapters.residency.bank import Banks
from peltier_backbone.load import Backbone

MakeArtifact = Callable[..., bytes]
TEXTS = ("a good film", "bad", "the plot was not very good , and the actor is dull")
PRESETS = {
    "bert": ("compacter", "unipelt-apl", "unipelt-apl-central", "lora", "adamix", "lowrank", "bitfit"),
    "t5": ("compacter", "unipelt-apl", "bitfit", "prompt-r"),
}
TRITON = TritonBackend(torch.device("cpu"))


@pytest.mark.parametrize("family", sorted(PRESETS))
def test_a_mixed_batch_answers_as_by_torch(
    family: str, make_artifact: MakeArtifact, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
):
    """Adapters of every kind of part, two of each beside a row of none: the same logits within 1e-5, whoever
    multiplies, and the same gates."""
    backbone: Backbone = request.getfixturevalue(family)
    banks = Banks(backbone)
    rows = [] if backbone.config.generates else [Row(backbone.tokenizer.encode("bad"))]
    for number, preset in enumerate(PRESETS[family]):
        for seed in range(2):
            resident = banks.add(read_artifact(make_artifact(backbone, preset, seed=seed), backbone))
            text = TEXTS[(number + seed) % len(TEXTS)]
            rows.append(Row(encode_input(backbone, resident.task, text), resident))
    monkeypatch.setattr(backend, "choose_backend", lambda device, dtype: TORCH)
    plain = forward(backbone, rows, record_gates=True)
    monkeypatch.setattr(backend, "choose_backend", lambda device, dtype: TRITON)
    for own, expected in zip(forward(backbone, rows, record_gates=True), plain, strict=True):
        torch.testing.assert_close(own.logits, expected.logits, rtol=1e-5, atol=1e-5)
        assert (own.gates is None) == (expected.gates is None)
        for label, gates in (own.gates or {}).items():
            assert gates == pytest.approx((expected.gates or {})[label], abs=1e-5)
