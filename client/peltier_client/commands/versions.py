"""`peltier versions`: which versions an adapter has, and which of them answer."""

from pydantic import BaseModel

from peltier_client.commands.arguments import ApiKey, Json, OwnAdapter, Url, connect, print_json
from peltier_client.commands.tables import print_versions
from peltier_client.exchange.connection import DEFAULT_URL
from peltier_client.protocol import Adapter, Split, VersionSummary


class Versions(BaseModel):
    """What `peltier versions --json` prints: the versions, newest first, and which of them a name means.

    `live` are those that the bare name means, each with its share of the requests; `aliases` the same by alias.
    """

    name: str
    live: Split
    aliases: dict[str, Split]
    versions: list[VersionSummary]

    @classmethod
    def of(cls, adapter: Adapter, versions: list[VersionSummary]) -> "Versions":
        """The two answers of a server as one."""
        return cls(name=adapter.name, live=adapter.live, aliases=adapter.aliases, versions=versions)


def versions(task: OwnAdapter, url: Url = DEFAULT_URL, api_key: ApiKey = None, json: Json = False) -> None:
    """List an adapter's versions, newest first, with the aliases that mean them."""
    with connect(url, api_key) as client:
        found = client.versions(task)
        adapter = client.adapter(task)
    if json:
        print_json(Versions.of(adapter, found))
    else:
        print_versions(adapter, found)
