"""The comparison of whole rows with torch before the first request."""

import pytest
import torch
from peltier_adapters.gpu import warm_up
from peltier_adapters.gpu.kernels.attention import Attention
from peltier_adapters.ops import choice

from tests.adapters_store.gpu.kernels.cases import TRITON


@pytest.fixture
def left_out(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Why the kernels were left out."""
    reasons: list[str] = []
    monkeypatch.setattr(choice, "choose_backend", lambda device, dtype: TRITON[dtype])
    monkeypatch.setattr(choice, "leave_out_kernels", lambda device, error: reasons.append(str(error)))
    return reasons


@pytest.mark.parametrize("family", ["bert", "modernbert", "t5_gated"])
def test_the_kernels_of_a_backbone_pass(family: str, left_out: list[str], request: pytest.FixtureRequest):
    """Attention, norms, pooling and gated activations too."""
    warm_up.warm_up(request.getfixturevalue(family))
    assert left_out == []


@pytest.mark.parametrize("family", ["bert", "t5_gated"])
def test_wrong_attention_is_noticed(family, left_out, request, monkeypatch):
    """As is an error of the compiler or of the driver."""
    backbone = request.getfixturevalue(family)
    monkeypatch.setattr(Attention, "attend", lambda self, query, *others, **options: torch.zeros_like(query))
    warm_up.warm_up(backbone)
    assert left_out == [f"triton computes {backbone.name} wrongly in torch.float32"]
