"""The native libraries that this processor can run."""

import pytest
from peltier_backbone.native.choice import survey_library
from peltier_backbone.native.library import Library

from tests.backbone.native.compiler import compiler as compiler
from tests.backbone.native.emulated_levels import EMULATED_LEVELS
from tests.backbone.native.emulated_levels import emulated_library as emulated_library
from tests.support import tiers
from tests.support.levels import kernel_levels, skip_unless_permitted


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Chooses the levels here, because pytest may import this file before it knows the tier."""
    if "level" in metafunc.fixturenames and "native" in metafunc.fixturenames:
        levels = [*kernel_levels(), *([] if tiers.is_gate() else EMULATED_LEVELS)]
        metafunc.parametrize("level", levels, scope="module")


@pytest.fixture(scope="module")
def native(level: str, request: pytest.FixtureRequest) -> Library:
    """Each of them in turn, and those whose instructions are emulated; in the gate only the fastest."""
    if level in EMULATED_LEVELS:
        emulated: Library = request.getfixturevalue("emulated_library")(level)
        return emulated
    skip_unless_permitted(level)
    library = survey_library(level).library
    assert library is not None
    return library
