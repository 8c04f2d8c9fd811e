"""Callers and their scopes."""

import pytest
from peltier_client.errors import Forbidden
from peltier_client.protocol import Scope
from peltier_server.auth.caller import ALL_SCOPES, LOCAL, TENANT, Caller


def test_a_scope_that_is_held_is_enough() -> None:
    """Who has them all is let in everywhere."""
    for scope in ALL_SCOPES:
        LOCAL.require(scope)


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
    """The sentence names the scope and what the key has."""
    with pytest.raises(Forbidden, match=r"needs the scope 'publish'; the key's scopes are: predict"):
        Caller("a", frozenset({"predict"}), "key:12345678").require("publish")


def test_one_tenant_reads_no_metrics_of_all() -> None:
    """Not by a key of an earlier release, nor by a token of an identity provider; an admin may read everything."""
    with pytest.raises(Forbidden, match=r"^the scope 'metrics' shows all tenants' adapters"):
        Caller("a", frozenset({"metrics", "predict"}), "key:12345678").require("metrics")
    Caller("a", frozenset({"metrics", "admin"}), "key:12345678").require("metrics")
    Caller("a", frozenset({"metrics", "predict"}), "key:12345678").require("predict")
