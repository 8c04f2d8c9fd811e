"""Imports compared with the answers of the libraries themselves, which are installed from PyPI."""

from pathlib import Path

import pytest

from tests.adapters_store.importers.libraries import PACKAGES, save_cases
from tests.adapters_store.importers.parity import OUTCOMES, backbone_of, check_case

# The gate compares with recorded answers, of fewer cases: `test_recorded_parity.py`.
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


@pytest.mark.parametrize(("origin", "case"), [(origin, case) for origin, cases in OUTCOMES.items() for case in cases])
def test_an_import_answers_as_its_library_does_or_is_refused(origin, case, saved, request):
    """Each adapter that a library can save gives the library's logits when served, or is refused with a reason."""
    folder = saved[origin] / case
    check_case(origin, folder, backbone_of(folder, request))


@pytest.mark.parametrize("origin", PACKAGES)
def test_every_saved_case_has_an_outcome(origin: str, saved: dict[str, Path]) -> None:
    assert sorted(folder.name for folder in saved[origin].iterdir()) == sorted(OUTCOMES[origin])
