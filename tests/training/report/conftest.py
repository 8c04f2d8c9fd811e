"""Here reports have whole plots."""

import pytest


@pytest.fixture(autouse=True)
def _plots() -> None:
    """Replaces the fixture of the other tests of training."""
