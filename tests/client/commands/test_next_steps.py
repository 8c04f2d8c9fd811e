"""What errors say to do next."""

import pytest
from peltier_client.commands.next_steps import with_next_steps
from peltier_client.errors import (
    AdapterNotFound,
    ConnectionFailed,
    Forbidden,
    PeltierError,
    QuotaExceeded,
    Unauthorized,
    VersionNotFound,
)
from peltier_client.synchronous.client import Client

STEPS = {
    "adapter": (AdapterNotFound("adapter 'sst' does not exist"), "see: peltier list"),
    "version": (VersionNotFound("adapter 'sst2' has no version 9; its newest is 3"), "see: peltier versions sst2"),
    "scope": (
        Forbidden("this needs the scope 'publish'; the key's scopes are: predict"),
        "ask an administrator for a key with this scope: peltier keys create --scope publish",
    ),
    "key": (Unauthorized("no"), "check PELTIER_API_KEY or --api-key"),
    "a broken connection": (ConnectionFailed("the connection to http://h broke: reset"), None),
    "a quota": (QuotaExceeded("later"), None),
}


@pytest.mark.parametrize("name", STEPS)
def test_the_next_step_follows_the_message(name: str) -> None:
    """After a semicolon; the error stays of its kind."""
    error, step = STEPS[name]
    said = error.message
    with pytest.raises(type(error)) as caught, with_next_steps("plt_x"):
        raise error
    assert str(caught.value) == caught.value.message == (f"{said}; {step}" if step else said)


def test_an_unreachable_server() -> None:
    """How to start one, or name another."""
    with (
        pytest.raises(PeltierError) as caught,
        with_next_steps(None),
        Client("http://127.0.0.1:1", max_attempts=1) as c,
    ):
        c.info()
    assert str(caught.value).endswith(
        "; start a server with `peltier serve`, or set PELTIER_URL to the address of another"
    )
