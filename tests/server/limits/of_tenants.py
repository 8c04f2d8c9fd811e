"""Bounds of one tenant."""

from unittest.mock import patch

from peltier_store.registry import aliases

from tests.server.limits.probe import Met, probe
from tests.server.limits.servers import TEXT, Servers


@probe("requests a second")
def _(servers: Servers) -> Met:
    with servers.bert.tenant(requests_per_second=0.001) as tenant:
        tenant.predict().raise_for_status()
        return tenant.predict()


@probe("tokens a second")
def _(servers: Servers) -> Met:
    with servers.bert.tenant(tokens_per_second=0.007) as tenant:
        tenant.predict().raise_for_status()
        return tenant.predict()


@probe("tokens of one request beside that quota")
def _(servers: Servers) -> Met:
    with servers.bert.tenant(tokens_per_second=0.007) as tenant:
        return tenant.predict([TEXT] * 2)


@probe("requests at a time")
def _(servers: Servers) -> Met:
    with servers.bert.tenant(max_concurrent_requests=0) as tenant:
        return tenant.predict()


@probe("stored bytes")
def _(servers: Servers) -> Met:
    with servers.bert.tenant(max_stored_bytes=100) as tenant:
        return tenant.upload(servers.make_artifact(servers.backbones["bert"], "bitfit"))


@probe("adapters")
def _(servers: Servers) -> Met:
    with servers.bert.tenant(max_adapters=0) as tenant:
        return tenant.upload(servers.make_artifact(servers.backbones["bert"], "bitfit"))


probe("share of a busy server")(lambda servers: servers.bert.client.put("/v1/tenants/default", json={"weight": 101}))
probe("characters of a key's note", "peltier_client.protocol.administration.MAX_NOTE_LEN")(
    lambda servers: servers.bert.client.post("/v1/keys", json={"scopes": ["predict"], "note": "a" * 201})
)


@probe("aliases of an adapter", "peltier_store.registry.aliases.MAX_ALIASES")
def _(servers: Servers) -> Met:
    with patch.object(aliases, "MAX_ALIASES", 1):
        for name in ("moved", "moved"):
            servers.bert.client.put(f"/v1/adapters/demo/aliases/{name}", json={"version": 1}).raise_for_status()
        return servers.bert.client.put("/v1/adapters/demo/aliases/one-more", json={"version": 1})


@probe("versions in the split of an alias", "peltier_client.protocol.aliases.MAX_SPLIT_VERSIONS")
def _(servers: Servers) -> Met:
    split = {str(number): 1 / 33 for number in range(1, 34)}
    return servers.bert.client.put("/v1/adapters/demo/aliases/moved", json={"versions": split})


@probe("changes in the history of an alias", "peltier_store.registry.aliases._MAX_HISTORY")
def _(servers: Servers) -> Met:
    path = "/v1/adapters/demo/aliases/moved"
    with patch.object(aliases, "_MAX_HISTORY", 2):
        for _ in range(2):
            servers.bert.client.put(path, json={"version": 1}).raise_for_status()
            servers.bert.client.delete(path).raise_for_status()
        history = servers.bert.client.get(f"{path}/history").json()["changes"]
    assert len(history) == 2
    return "the newest are listed"
