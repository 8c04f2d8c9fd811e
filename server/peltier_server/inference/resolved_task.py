"""The adapter version that a request uses."""

from typing import NamedTuple

from peltier_adapters.artifact.artifact import Artifact
from peltier_client.protocol import TaskReference

from peltier_server.catalog.entry import Entry
from peltier_server.context import RequestContext


class ResolvedTask(NamedTuple):
    """The version that a reference named when its request arrived. The request keeps this version even if the reference
    names another one later. The backbone's own task brings its `artifact`, because no store has it."""

    reference: TaskReference
    context: RequestContext
    entry: Entry
    artifact: Artifact | None = None
