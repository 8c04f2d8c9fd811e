"""Whole batches through the kernels, as a GPU would run them, against the parts on the CPU."""

from collections.abc import Callable

import pytest
import torch
from peltier_adapters.artifact import read_artifact
from peltier_adapters.bank import Banks
from peltier_adapters.batch import forward
from peltier_adapters.inputs import encode_input
from peltier_adapters.kernels import choice, compacter, fused
from peltier_adapters.row import Row
from peltier_adapters.segments import Segments
from peltier_backbone.load import Backbone

MakeArtifact = Callable[..., bytes]
TEXTS = ("a good film", "bad", "the plot was not very good , and the actor is dull")
PRESETS = {
    "bert": ("compacter", "unipelt-apl", "lora", "adamix", "lowrank", "bitfit"),
    "t5": ("compacter", "unipelt-apl"),
}


@pytest.mark.parametrize("family", sorted(PRESETS))
def test_a_mixed_batch_answers_as_without_kernels(
    family: str, make_artifact: MakeArtifact, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
):
    """Adapters of every kind of part, two of each: the same logits within 1e-5, whoever multiplies."""
    backbone: Backbone = request.getfixturevalue(family)
    banks = Banks(backbone)
    rows = []
    for number, preset in enumerate(PRESETS[family]):
        for seed in range(2):
            resident = banks.add(read_artifact(make_artifact(backbone, preset, seed=seed), backbone))
            text = TEXTS[(number + seed) % len(TEXTS)]
            rows.append(Row(encode_input(backbone, resident.task, text), resident))
    plain = forward(backbone, rows)
    launches: list[str] = []
    monkeypatch.setattr(choice, "use_kernels", lambda device: launches.append(device.type) or True)
    for own, expected in zip(forward(backbone, rows), plain, strict=True):
        torch.testing.assert_close(own.logits, expected.logits, rtol=1e-5, atol=1e-5)
    assert launches


def test_a_compacter_may_be_built(bert: Backbone, make_artifact: MakeArtifact, monkeypatch: pytest.MonkeyPatch):
    """Then its maps are dense ones of another kernel, and the logits the same."""
    banks, rows = Banks(bert), []
    for seed in range(2):
        resident = banks.add(read_artifact(make_artifact(bert, "compacter", seed=seed), bert))
        rows.append(Row(encode_input(bert, resident.task, TEXTS[seed]), resident))
    plain = forward(bert, rows)
    monkeypatch.setattr(choice, "use_kernels", lambda device: True)
    monkeypatch.setattr(fused, "BUILD_COMPACTERS", True)
    monkeypatch.setattr(compacter, "compacter", lambda *given: pytest.fail("the factored kernel was called"))
    for own, expected in zip(forward(bert, rows), plain, strict=True):
        torch.testing.assert_close(own.logits, expected.logits, rtol=1e-5, atol=1e-5)


def test_training_never_meets_a_kernel(monkeypatch: pytest.MonkeyPatch):
    """They have no gradient: with gradients on, torch's own products serve."""
    monkeypatch.setattr(choice, "use_kernels", lambda device: True)
    assert Segments((2, 3), (0, 1), torch.device("cpu")).launcher is None
    with torch.no_grad():
        assert Segments((2, 3), (0, 1), torch.device("cpu")).launcher is not None
