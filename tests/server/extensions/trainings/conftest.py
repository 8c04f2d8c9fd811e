"""What tests of trainings share: a key, an artifact for the worker to leave, and streams that look often."""

import pytest
from peltier_server.extensions.trainings import event_feed


@pytest.fixture(scope="module", autouse=True)
def _streams_look_often():
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(event_feed, "_TICK_SECONDS", 0.02)
        yield


@pytest.fixture(scope="module")
def key(world):
    """A key with the scopes train and predict."""
    return world.add_tenant("train", "predict").key


@pytest.fixture
def artifact(bert, make_artifact):
    """What the worker leaves."""
    return make_artifact(bert, "bitfit")
