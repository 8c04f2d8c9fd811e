"""Compares an import of what a library has saved with the library's own answers."""

import json
from pathlib import Path

import pytest
import torch
from peltier_adapters.errors import AdapterError
from peltier_adapters.importers import extensions  # noqa: F401 - it registers its readers
from peltier_adapters.importers.run import Import, TaskOptions, import_adapter
from peltier_backbone.backbone import Backbone

from tests.adapters_store.importers.conftest import outputs

# The outcome of each adapter that the scripts in `foreign` save: null if served, else the reason of the refusal.
OUTCOMES = json.loads(Path(__file__).with_name("outcomes.json").read_text())
# Log-likelihoods of a T5 are ten times as large as logits and keep it too.
_TOLERANCE = 1e-4
# Their checkpoints have no head.
EMBEDDINGS = ("bert-lora-features", "modernbert-lora", "modernbert-ln", "modernbert-ia3")


def backbone_of(case: Path, request: pytest.FixtureRequest) -> Backbone:
    """The backbone for which the adapter in this folder was made."""
    backbone: Backbone = request.getfixturevalue(json.loads((case / "expected.json").read_text())["backbone"])
    return backbone


def check_case(origin: str, case: Path, backbone: Backbone) -> None:
    """Fails unless the adapter answers as its library did, or is refused with the reason in `OUTCOMES`."""
    expected = json.loads((case / "expected.json").read_text())
    text = backbone.config.generates
    options = TaskOptions(
        labels=("a", "b", "c") if text else None,
        targets=tuple(expected["targets"]) if text else None,
        pooling="mean" if case.name in EMBEDDINGS else None,
    )
    wanted, refusal = Import(origin, case, "imported", options=options), OUTCOMES[origin][case.name]
    if refusal is not None:
        with pytest.raises(AdapterError, match=refusal):
            import_adapter(wanted, backbone)
        return
    for answer, own in zip(outputs(wanted, backbone), expected["answers"], strict=True):
        torch.testing.assert_close(answer.flatten(), torch.tensor(own), rtol=0, atol=_TOLERANCE)
