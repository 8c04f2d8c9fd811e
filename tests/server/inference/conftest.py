"""The adapter of a module, `artifact`, in a server and outside of it."""

from collections.abc import Callable

import pytest
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.residency.bank import Banks, Resident
from peltier_backbone.backbone import Backbone

from tests.server.conftest import Running


@pytest.fixture(scope="module")
def resident(bert: Backbone, artifact: bytes) -> Resident:
    """The adapter, outside the server."""
    return Banks(bert).add(read_artifact(artifact, bert))


@pytest.fixture
async def published(running: Running, artifact: bytes, bert: Backbone, make_artifact: Callable[..., bytes]) -> Running:
    """A server with the adapter and a classification."""
    for data in (artifact, make_artifact(bert, "compacter", name="sst2")):
        assert (await running.upload(data)).status_code == 201
    return running
