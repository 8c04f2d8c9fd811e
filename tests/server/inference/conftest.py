"""The adapter of a module, `artifact`, in a server and outside of it."""

import pytest
import pytest_asyncio
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.residency.bank import Banks, Resident
from peltier_backbone.backbone import Backbone


@pytest.fixture(scope="module")
def resident(bert: Backbone, artifact: bytes) -> Resident:
    """The adapter, outside the server."""
    return Banks(bert).add(read_artifact(artifact, bert))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def published(app_world, artifact, bert, make_artifact):
    """The module's server with the adapter and a classification."""
    for data in (artifact, make_artifact(bert, "compacter", name="sst2")):
        assert (await app_world.upload(data)).status_code == 201
    return app_world
