"""Fixtures of the adapter suites: a backbone of each family, and a hub."""

from collections.abc import Iterator
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub.utils import close_session, disable_progress_bars
from peltier_adapters.conversion import weights
from peltier_adapters.hub import download
from peltier_backbone.backbone import Backbone
from peltier_store.sources import push

from tests.support.hub_server import Hub, run_hub


@pytest.fixture(params=["bert", "roberta", "modernbert", "t5"])
def backbone(request: pytest.FixtureRequest) -> Backbone:
    """Each of the small random backbones in turn."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hub]:
    """A hub on loopback, which huggingface_hub asks in place of the real one, without a token. Downloads and pushes run
    in this process, which has no limits; its hub is in no environment."""
    monkeypatch.delenv("HF_TOKEN", raising=False)
    disable_progress_bars()
    monkeypatch.setattr(download, "run", lambda module, job, *_: download.fetch(job, lambda limits: None))
    monkeypatch.setattr(push, "run", lambda module, job, *_: push.commit(job, lambda limits: None))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path_factory.mktemp("hub")))
    with run_hub() as running:
        template = huggingface_hub.constants.HUGGINGFACE_CO_URL_TEMPLATE
        whole = template.replace(huggingface_hub.constants.ENDPOINT, running.endpoint)
        monkeypatch.setattr(huggingface_hub.constants, "HUGGINGFACE_CO_URL_TEMPLATE", whole)
        monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", running.endpoint)
        monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_DISABLE_XET", True)
        yield running
        close_session()


@pytest.fixture
def reads_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pickles are read in this process, which has no limits, because another one imports torch first."""

    def run(module: str, job: Any, *_: object) -> Any:
        assert module == weights.__name__
        return weights.convert_files(job)

    monkeypatch.setattr(weights, "run", run)
