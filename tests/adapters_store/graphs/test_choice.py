"""Which devices and settings use graphs."""

from types import SimpleNamespace

import pytest
from peltier_adapters.graphs import choice
from peltier_adapters.ops import choice as ops_choice
from peltier_backbone.backbone import Backbone


@pytest.mark.parametrize(
    ("family", "kernels", "expected"), [("bert", True, True), ("bert", False, False), ("t5", True, False)]
)
def test_an_encoder_with_kernels_is_captured(
    family: str, kernels: bool, expected: bool, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
):
    """T5 decodes step by step, and torch's own products ask the host where groups end."""
    chosen = SimpleNamespace(name="triton" if kernels else "torch")
    monkeypatch.setattr(ops_choice, "choose_backend", lambda device, dtype: chosen)
    assert choice.can_capture(request.getfixturevalue(family)) is expected


def test_the_cpu_has_no_graphs(bert: Backbone):
    """With any settings."""
    assert choice.create_graphs(bert) is None
