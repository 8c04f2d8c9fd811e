"""Errors of the hub."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from httpx2 import HTTPError

from peltier_adapters.errors import AdapterError

# Redirects of the hub have signatures in their query.
_QUERY = re.compile(r"\?[^\s'\"]*")


class HubError(AdapterError):
    """The hub refused a request, or what it sent cannot be used."""


@contextmanager
def as_hub_errors(failure: str) -> Iterator[None]:
    """Raises errors of the hub and of the connection in the block as a HubError that begins with `failure`."""
    try:
        yield
    except AdapterError:
        raise
    except (HTTPError, OSError, ValueError, KeyError, TypeError, RuntimeError, MemoryError) as error:
        # `HfHubHTTPError` is an OSError; a malformed answer raises the others.
        cause = error.__cause__ if type(error) is RuntimeError and error.__cause__ else error
        # The lines after the second are advice.
        lines = [line.strip() for line in str(cause).splitlines() if line.strip()][:2]
        reason = _QUERY.sub("", " ".join(lines)) or type(cause).__name__
        raise HubError(f"{failure}: {reason}") from error
