"""`peltier versions`: the versions of an adapter, and which of them answer."""

from pydantic import BaseModel

from peltier_client.commands.arguments import ApiKey, Json, OwnAdapter, Url, connect, print_result
from peltier_client.commands.tables import print_versions
from peltier_client.exchange.connection import DEFAULT_URL
from peltier_client.protocol import Split, VersionSummary


class Versions(BaseModel):
    """What `peltier versions --json` prints: the versions, newest first.

    `live` is the share of requests that each version gets under the bare name, and `aliases` the same for each alias.
    """

    name: str
    live: Split
    aliases: dict[str, Split]
    versions: list[VersionSummary]


def versions(task: OwnAdapter, url: Url = DEFAULT_URL, api_key: ApiKey = None, json: Json = False) -> None:
    """List an adapter's versions, newest first, with the aliases that point to them."""
    with connect(url, api_key) as client:
        found = client.versions(task)
        adapter = client.adapter(task)
    document = Versions(name=adapter.name, live=adapter.live, aliases=adapter.aliases, versions=found)
    print_result(document, lambda: print_versions(adapter, found), json=json)
