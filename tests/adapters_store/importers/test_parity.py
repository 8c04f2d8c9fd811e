"""Imports compared with the libraries' own answers."""

import json
from pathlib import Path

import pytest
import torch
from peltier_adapters.errors import AdapterError
from peltier_adapters.importers.options import TaskOptions
from peltier_adapters.importers.run import Import, import_adapter
from peltier_backbone.load import Backbone

from tests.adapters_store.importers.conftest import served
from tests.adapters_store.importers.libraries import PACKAGES, save_cases
from tests.adapters_store.importers.outcomes import OUTCOMES

# The issue's own bound on logits; log-likelihoods of a T5 are ten times as large and keep it too.
TOLERANCE = 1e-4

# The tests of each importer stay: they serve directories as the libraries write them.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("foreign")]


@pytest.fixture(scope="session")
def saved(
    tmp_path_factory: pytest.TempPathFactory,
    bert_directory: Path,
    roberta_directory: Path,
    t5_directory: Path,
    t5_gated_directory: Path,
) -> dict[str, Path]:
    """What each library saved, a folder of cases by origin."""
    root = tmp_path_factory.mktemp("foreign")
    backbones = root / "backbones"
    backbones.mkdir()
    t5s = ("t5", t5_directory), ("t5_gated", t5_gated_directory)
    for name, directory in (("bert", bert_directory), ("roberta", roberta_directory), *t5s):
        (backbones / name).symlink_to(directory)
    return {origin: save_cases(origin, backbones, root / origin) for origin in PACKAGES}


@pytest.fixture(scope="session")
def backbones(bert: Backbone, roberta: Backbone, t5: Backbone, t5_gated: Backbone) -> dict[str, Backbone]:
    """The backbones by the names that the cases give them."""
    return {"bert": bert, "roberta": roberta, "t5": t5, "t5_gated": t5_gated}


@pytest.mark.parametrize(("origin", "case"), [(origin, case) for origin, cases in OUTCOMES.items() for case in cases])
def test_an_import_answers_as_its_library_does_or_is_refused(
    origin: str, case: str, saved: dict[str, Path], backbones: dict[str, Backbone]
) -> None:
    """Each adapter that a library can save gives the library's own logits when served, or the sentence that says why
    not."""
    folder = saved[origin] / case
    expected = json.loads((folder / "expected.json").read_text())
    backbone = backbones[expected["backbone"]]
    text = backbone.config.generates
    options = TaskOptions(
        labels=("a", "b", "c") if text else None, targets=tuple(expected["targets"]) if text else None
    )
    wanted, refusal = Import(origin, folder, "imported", options=options), OUTCOMES[origin][case]
    if refusal is not None:
        with pytest.raises(AdapterError, match=refusal):
            import_adapter(wanted, backbone)
        return
    answers = served(origin, folder, backbone, options)
    torch.testing.assert_close(answers, torch.tensor(expected["answers"]), rtol=0, atol=TOLERANCE)


def test_a_heads_kind_of_task_is_kept(saved: dict[str, Path], bert: Backbone) -> None:
    """What the library says of a head decides how its logits are read: each label by itself, or one of them."""
    kinds = {}
    for case in ("bert-seq_bn-multilabel", "bert-seq_bn-flexible"):
        task = import_adapter(Import("adapterhub", saved["adapterhub"] / case, "imported"), bert).manifest.task
        kinds[task.type] = task.labels
    assert kinds == {"multilabel": ("no", "maybe", "yes"), "classification": ("no", "maybe", "yes")}


@pytest.mark.parametrize("origin", PACKAGES)
def test_every_saved_case_has_an_outcome(origin: str, saved: dict[str, Path]) -> None:
    """No adapter that a script saves goes without a comparison."""
    assert sorted(folder.name for folder in saved[origin].iterdir()) == sorted(OUTCOMES[origin])
