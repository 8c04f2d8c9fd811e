"""What a request's task means."""

from dataclasses import dataclass

from peltier_client.protocol import TaskReference

from peltier_server.origin import Origin
from peltier_server.versions.entry import Entry


@dataclass(frozen=True, slots=True)
class Target:
    """The version that a reference meant when its request arrived. The request keeps it, whatever happens meanwhile."""

    reference: TaskReference
    origin: Origin
    entry: Entry
