"""Whole models by kernels whose instructions are emulated, against torch."""

from collections.abc import Callable

import pytest
import torch
from peltier_backbone.backbone import Backbone
from peltier_backbone.decoding.targets import Targets
from peltier_backbone.load import load_backbone
from peltier_backbone.native import choice
from peltier_backbone.native.choice import kernels_in_use
from peltier_backbone.native.library import Library
from torch import Tensor

from tests.backbone.native.emulated_levels import EMULATED_LEVELS
from tests.support.decoder import decode

# One word, a row with all others, and rows that fill no tile of sixteen.
_TEXTS = ("good", "a good film", "not a film that one can forget, and it is long", "a film")


@pytest.fixture(params=EMULATED_LEVELS)
def emulated(
    request: pytest.FixtureRequest, emulated_library: Callable[[str], Library], monkeypatch: pytest.MonkeyPatch
) -> str:
    """The kernels of each emulated level, which `kernels_in_use` then knows."""
    name: str = request.param
    library, load = emulated_library(name), choice._library
    monkeypatch.setattr(choice, "_library", lambda kernels: library if kernels == name else load(kernels))
    monkeypatch.setattr(choice, "_require", lambda kernels: None)
    return name


def _states(backbone: Backbone, texts: tuple[str, ...] = _TEXTS) -> list[Tensor]:
    """Those of each row's tokens, flat; with a decoder, also the logits of a text for each row."""
    rows = [backbone.tokenizer.encode(text) for text in texts]
    packed, lengths = backbone.pack(rows), [len(row) for row in rows]
    if not backbone.config.generates:
        return [one.flatten() for one in torch.split(backbone.encode(packed), lengths)]
    states = backbone.encode(packed)
    targets = Targets.create([[0, 5, 9, 3]] * len(rows), None, backbone.device)
    logits = backbone.t5.logits(decode(backbone, targets, backbone.t5.project_kv(packed, states)))
    return [
        torch.cat((one.flatten(), own.flatten()))
        for one, own in zip(torch.split(states, lengths), torch.split(logits, 4), strict=True)
    ]


@pytest.mark.parametrize("precision", ["float32", "bfloat16", "int8"])
@pytest.mark.parametrize("family", ["bert", "deberta", "eurobert", "modernbert", "t5"])
@torch.inference_mode()
def test_a_model_is_as_exact_as_by_torch(family, precision, emulated, request):
    """It is as near to torch in float32 as torch in its precision is; a row answers as alone to the last bit."""
    folder = str(request.getfixturevalue(f"{family}_directory"))
    with kernels_in_use("torch"):
        exact, theirs = (torch.cat(_states(load_backbone(folder, dtype=one))) for one in ("float32", precision))
    with kernels_in_use(emulated):
        backbone = load_backbone(folder, dtype=precision)
        assert "native" in backbone.kernels["linear"]
        together = _states(backbone)
        alone = [state for text in _TEXTS for state in _states(backbone, (text,))]
    assert all(torch.equal(one, own) for one, own in zip(together, alone, strict=True))
    allowed = 1.2 * (theirs - exact).norm() + 2e-6 * exact.norm()
    assert (torch.cat(together) - exact).norm() <= allowed
