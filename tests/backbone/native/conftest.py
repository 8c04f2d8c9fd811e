"""The native libraries that this processor can run."""

import pytest
from peltier_backbone.native.library import Library
from peltier_backbone.native.survey import survey_library

from tests.backbone.native.compiler import compiler as compiler
from tests.backbone.native.emulated_levels import EMULATED_LEVELS
from tests.backbone.native.emulated_levels import emulated_library as emulated_library
from tests.support.levels import LEVELS, skip_unless_permitted

_PARAMS = [*LEVELS, *(pytest.param(level, marks=pytest.mark.slow) for level in EMULATED_LEVELS)]


@pytest.fixture(scope="module", params=_PARAMS)
def native(request: pytest.FixtureRequest) -> Library:
    """Each of them in turn, and those whose instructions are emulated."""
    if request.param in EMULATED_LEVELS:
        emulated: Library = request.getfixturevalue("emulated_library")(request.param)
        return emulated
    skip_unless_permitted(request.param)
    library = survey_library(request.param).library
    assert library is not None
    return library
