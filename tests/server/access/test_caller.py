"""Who asks, and what for."""

import pytest
from peltier_client.errors import Forbidden
from peltier_server.access.caller import LOCAL, Caller


def test_a_scope_that_is_held_is_enough() -> None:
    """Scopes do not imply each other, so the one that is asked for must be there."""
    for scope in ("predict", "publish", "admin"):
        LOCAL.require(scope)


def test_a_missing_scope_is_refused_by_name() -> None:
    """The sentence names the scope and what the key has."""
    with pytest.raises(Forbidden, match=r"needs the scope 'publish'; the key's scopes are: predict"):
        Caller("a", frozenset({"predict"}), "key:12345678").require("publish")
