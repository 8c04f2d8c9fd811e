"""Adds to an error what its reader can do next."""

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from peltier_client.errors import (
    AdapterNotFound,
    ConnectionFailed,
    Forbidden,
    PeltierError,
    Unauthorized,
    VersionNotFound,
)
from peltier_client.exchange.connection import is_unconnected


@contextmanager
def with_next_steps(api_key: str | None) -> Iterator[None]:
    """Errors raised inside get a second part: which command or setting to try."""
    try:
        yield
    except PeltierError as error:
        if step := next_step(error, api_key):
            error.message = f"{error.message}; {step}"
            error.args = (error.message,)
        raise


def next_step(error: PeltierError, api_key: str | None) -> str | None:
    """What to do after `error`, without a capital or a full stop; None if that is not known."""
    if isinstance(error, Unauthorized):
        return "set PELTIER_API_KEY" if api_key is None else "check PELTIER_API_KEY or --api-key"
    for kind, step in _STEPS.items():
        if isinstance(error, kind):
            return step(error)
    return None


def _start_a_server(error: PeltierError) -> str | None:
    if not is_unconnected(error):
        return None
    return "start a server with `peltier serve`, or set PELTIER_URL to the address of another"


def _get_the_scope(error: PeltierError) -> str | None:
    scope = re.search(r"needs the scope '(\w+)'", error.message)
    return scope and f"ask an administrator for a key with this scope: peltier keys create --scope {scope[1]}"


def _list_versions(error: PeltierError) -> str | None:
    adapter = re.search(r"adapter '([^']+)'", error.message)
    return adapter and f"see: peltier versions {adapter[1]}"


_STEPS: Mapping[type[PeltierError], Callable[[PeltierError], str | None]] = {
    ConnectionFailed: _start_a_server,
    Forbidden: _get_the_scope,
    AdapterNotFound: lambda _: "see: peltier list",
    VersionNotFound: _list_versions,
}
