"""Fixtures of the adapter suites: a backbone of each family, and a hub."""

from collections.abc import Iterator

import huggingface_hub
import pytest
from huggingface_hub.utils import close_session
from peltier_backbone.backbone import Backbone

from tests.support.hub_server import Hub, run_hub


@pytest.fixture(params=["bert", "roberta", "modernbert", "t5"])
def backbone(request: pytest.FixtureRequest) -> Backbone:
    """Each of the small random backbones in turn."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """A hub on loopback, which huggingface_hub asks in place of the real one, without a token."""
    monkeypatch.delenv("HF_TOKEN", raising=False)
    with run_hub() as running:
        template = huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE
        whole = template.replace(huggingface_hub.constants.ENDPOINT, running.endpoint)
        monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", whole)
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", running.endpoint)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
        yield running
        close_session()
