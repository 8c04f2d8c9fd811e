"""Tenants and keys in memory."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta

import pytest
from peltier_client.errors import Forbidden, NotFound, Unauthorized
from peltier_client.protocol.administration import Scope, TenantInfo, TenantQuotas
from peltier_server.auth.credentials import Credentials
from peltier_server.auth.keyring import ALL_SCOPES, TENANT, Caller, Keyring
from peltier_store.registry.records import Key, Position, RegistrySnapshot

NOW = datetime.now(UTC)
CREDENTIALS = Credentials(b"a secret")
POSITION = Position(1, "1")


def test_no_scope_implies_another_but_that_an_admin_reads_metrics() -> None:
    """Every pair of a scope that is held, in the operator's tenant, and one that is asked for."""
    enough = {(held, asked) for held in ALL_SCOPES for asked in ALL_SCOPES if _may(held, asked)}
    assert enough == {(scope, scope) for scope in ALL_SCOPES} | {("admin", "metrics")}


def _may(held: Scope, asked: Scope) -> bool:
    try:
        Caller(TENANT, frozenset({held}), "key:12345678").require(asked)
    except Forbidden:
        return False
    return True


def test_a_missing_scope_is_refused_by_name() -> None:
    with pytest.raises(Forbidden, match=r"needs the scope 'publish'; the key's scopes are: predict"):
        Caller("a", frozenset({"predict"}), "key:12345678").require("publish")


def test_one_tenant_reads_no_metrics_of_all() -> None:
    """Not by a key of an earlier release, nor by a token of an identity provider; an admin may read everything."""
    with pytest.raises(Forbidden, match=r"^the scope 'metrics' shows all tenants' adapters"):
        Caller("a", frozenset({"metrics", "predict"}), "key:12345678").require("metrics")
    Caller("a", frozenset({"metrics", "admin"}), "key:12345678").require("metrics")
    Caller("a", frozenset({"metrics", "predict"}), "key:12345678").require("predict")


def make_key(tenant: str, age_days: int = 0) -> tuple[str, Key]:
    issued = CREDENTIALS.issue()
    made = NOW - timedelta(days=age_days)
    return issued.text, Key(issued.prefix, tenant, issued.digest, frozenset({"admin"}), "", made, "", None, None)


def make_tenant(name: str, max_adapters: int | None = None) -> TenantInfo:
    return TenantInfo(name=name, created_at=NOW, quotas=TenantQuotas(max_adapters=max_adapters))


@pytest.fixture
def keyring() -> Keyring:
    made = Keyring()
    made.unlock(CREDENTIALS)
    return made


def test_nothing_is_known_before_the_registry_is_read(keyring: Keyring) -> None:
    """An empty keyring is not one that has been read to be empty."""
    assert not keyring.is_known
    keyring.apply(RegistrySnapshot(POSITION, (), ()))
    assert keyring.is_known
    assert keyring.is_empty


def test_what_has_not_changed_stays(keyring: Keyring) -> None:
    """A snapshot holds only the tenants and keys that have changed."""
    (text, first), (_, second) = make_key("a"), make_key("b")
    keyring.apply(RegistrySnapshot(POSITION, (), (make_tenant("a"), make_tenant("b")), (first,)))
    keyring.apply(RegistrySnapshot(POSITION, (), (make_tenant("b", max_adapters=3),), (second,)))
    assert keyring.caller(text).tenant == "a"
    assert [tenant.name for tenant in keyring.tenants(after="", limit=9)] == ["a", "b"]
    assert keyring.quotas("b").max_adapters == 3


def test_a_whole_snapshot_replaces_everything(keyring: Keyring) -> None:
    """A restored registry may lack tenants and keys that were known."""
    (text, first), (_, second) = make_key("a"), make_key("b")
    keyring.apply(RegistrySnapshot(POSITION, (), (make_tenant("a"), make_tenant("b")), (first, second)))
    keyring.apply(RegistrySnapshot(POSITION, (), (make_tenant("b"),), (second,), is_whole=True))
    with pytest.raises(Unauthorized):
        keyring.caller(text)
    assert not keyring.has_tenant("a")
    assert keyring.list_keys(None, after="", limit=9) == [second]


def test_keys_are_listed_by_age(keyring: Keyring) -> None:
    keys = {age: make_key("a" if age < 3 else "b", age)[1] for age in (1, 3, 2)}
    keyring.apply(RegistrySnapshot(POSITION, (), (make_tenant("a"), make_tenant("b")), tuple(keys.values())))
    assert keyring.list_keys(None, after="", limit=9) == [keys[3], keys[2], keys[1]]
    assert keyring.list_keys("a", after="", limit=9) == [keys[2], keys[1]]
    assert keyring.list_keys("z", after="", limit=9) == []
    assert keyring.list_keys(None, after=keys[2].prefix, limit=9) == [keys[1]]


def test_only_a_live_key_is_the_last_admin(keyring: Keyring) -> None:
    """Keys that expired or were revoked cannot create others, so they do not count beside the last one that can."""
    live, *others = (make_key("a")[1] for _ in range(3))
    over = [replace(others[0], expires_at=NOW - timedelta(days=1)), replace(others[1], revoked_at=NOW)]
    keyring.apply(RegistrySnapshot(POSITION, (), (make_tenant("a"),), (live, *over)))
    assert keyring.is_last_admin(live.prefix)
    keyring.apply(RegistrySnapshot(POSITION, (), (), (make_key("a")[1],)))
    assert not keyring.is_last_admin(live.prefix)


def test_a_key_expires_by_the_clock_of_the_registry(keyring: Keyring) -> None:
    text, key = make_key("a")
    ends_at = NOW + timedelta(days=9)
    keyring.apply(RegistrySnapshot(POSITION, (), (make_tenant("a"),), (replace(key, expires_at=ends_at),)))
    keyring.now = lambda: ends_at - timedelta(seconds=1)
    assert keyring.caller(text).tenant == "a"
    keyring.now = lambda: ends_at
    with pytest.raises(Unauthorized, match="expired"):
        keyring.caller(text)


def test_unknown_tenants_have_nothing(keyring: Keyring) -> None:
    assert keyring.quotas("z") == TenantQuotas()
    assert not keyring.has_tenant("z")
    with pytest.raises(NotFound, match="tenant 'z' does not exist"):
        keyring.tenant("z")


def test_keys_made_under_another_secret_are_wrong(caplog: pytest.LogCaptureFixture) -> None:
    """The log says so once, because a replica without the shared secret is a likely mistake."""
    text, key = make_key("a")
    keyring = Keyring()
    keyring.unlock(Credentials(b"another secret"))
    keyring.apply(RegistrySnapshot(POSITION, (), (make_tenant("a"),), (key,)))
    for _ in range(3):
        with pytest.raises(Unauthorized):
            keyring.caller(text)
    (record,) = caplog.records
    assert "PELTIER_SECRET is not the one that it" in record.getMessage()
    assert text not in record.getMessage()
