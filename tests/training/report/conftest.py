"""Here reports have whole plots, but for those of shared trainings."""

import pytest


@pytest.fixture(autouse=True)
def _plots() -> None:
    """Replaces the fixture of the other tests of training."""
