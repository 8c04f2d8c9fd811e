"""Fixtures of the adapter suites: a backbone of each family."""

import pytest
from peltier_backbone.backbone import Backbone


@pytest.fixture(params=["bert", "roberta", "modernbert", "t5"])
def backbone(request: pytest.FixtureRequest) -> Backbone:
    """Each of the small random backbones in turn."""
    return request.getfixturevalue(request.param)
