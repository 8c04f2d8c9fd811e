"""What a request's task means."""

from dataclasses import dataclass

from peltier_client.protocol import TaskReference

from peltier_server.catalog.entry import Entry
from peltier_server.context import RequestContext


@dataclass(frozen=True, slots=True)
class ResolvedTask:
    """The version that a reference meant when its request arrived. The request keeps it, whatever happens meanwhile."""

    reference: TaskReference
    context: RequestContext
    entry: Entry
