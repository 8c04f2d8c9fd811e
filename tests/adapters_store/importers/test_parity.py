"""Imports compared with the libraries' own answers."""

import json
from pathlib import Path

import pytest
import torch
from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.run import Import, TaskOptions, import_adapter
from peltier_backbone.backbone import Backbone

from tests.adapters_store.importers.conftest import outputs
from tests.adapters_store.importers.libraries import PACKAGES, save_cases
from tests.adapters_store.importers.outcomes import OUTCOMES

# The issue's own bound on logits; log-likelihoods of a T5 are ten times as large and keep it too.
TOLERANCE = 1e-4

# The tests of each importer stay: they serve directories as the libraries write them.
pytestmark = pytest.mark.slow


FAMILIES = (
    "bert",
    "roberta",
    "distilbert",
    "electra",
    "mpnet",
    "nomic_bert",
    "gte",
    "jina",
    "eurobert",
    "modernbert",
    "t5",
    "t5_gated",
)


@pytest.fixture(scope="session")
def saved(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> dict[str, Path]:
    """What each library saved, a folder of cases by origin."""
    root = tmp_path_factory.mktemp("foreign")
    backbones = root / "backbones"
    backbones.mkdir()
    for name in FAMILIES:
        (backbones / name).symlink_to(request.getfixturevalue(f"{name}_directory"))
    return {origin: save_cases(origin, backbones, root / origin) for origin in PACKAGES}


@pytest.fixture(scope="session")
def backbones(request: pytest.FixtureRequest) -> dict[str, Backbone]:
    """The backbones by the names that the cases give them."""
    return {name: request.getfixturevalue(name) for name in FAMILIES}


# Their checkpoints have no head.
EMBEDDINGS = ("bert-lora-features", "modernbert-lora", "modernbert-ln", "modernbert-ia3")


@pytest.mark.parametrize(("origin", "case"), [(origin, case) for origin, cases in OUTCOMES.items() for case in cases])
def test_an_import_answers_as_its_library_does_or_is_refused(
    origin: str, case: str, saved: dict[str, Path], backbones: dict[str, Backbone]
) -> None:
    """Each adapter that a library can save gives the library's logits when served, or is refused with a reason."""
    folder = saved[origin] / case
    expected = json.loads((folder / "expected.json").read_text())
    backbone = backbones[expected["backbone"]]
    text = backbone.config.generates
    options = TaskOptions(
        labels=("a", "b", "c") if text else None,
        targets=tuple(expected["targets"]) if text else None,
        pooling="mean" if case in EMBEDDINGS else None,
    )
    wanted, refusal = Import(origin, folder, "imported", options=options), OUTCOMES[origin][case]
    if refusal is not None:
        with pytest.raises(AdapterError, match=refusal):
            import_adapter(wanted, backbone)
        return
    for answer, own in zip(outputs(wanted, backbone), expected["answers"], strict=True):
        torch.testing.assert_close(answer.flatten(), torch.tensor(own), rtol=0, atol=TOLERANCE)


def test_a_heads_kind_of_task_is_kept(saved: dict[str, Path], bert: Backbone) -> None:
    """The library's type of a head decides whether labels exclude each other."""
    kinds = {}
    for case in ("multilabel", "flexible", "tagging", "qa"):
        path = saved["adapterhub"] / f"bert-seq_bn-{case}"
        task = import_adapter(Import("adapterhub", path, "imported"), bert).manifest.task
        kinds[task.type] = task.labels
    assert kinds == {
        "multilabel": ("no", "maybe", "yes"),
        "classification": ("no", "maybe", "yes"),
        "token-classification": ("O", "B-a", "I-a"),
        "span": ("start", "end"),
    }


@pytest.mark.parametrize("origin", PACKAGES)
def test_every_saved_case_has_an_outcome(origin: str, saved: dict[str, Path]) -> None:
    """Every adapter that a script saves is compared."""
    assert sorted(folder.name for folder in saved[origin].iterdir()) == sorted(OUTCOMES[origin])
