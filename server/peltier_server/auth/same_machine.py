"""Checks that a request to a server without keys comes from a program on this machine, not through a browser or
proxy.
"""

import ipaddress
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import urlsplit

from peltier_client.errors import Forbidden


def check_origin(headers: Mapping[str, str]) -> None:
    """Raises `Forbidden` for a request from a page of another site. Browsers send the site in `origin`, and let any
    page post a form without a preflight request.
    """
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != headers.get("host"):
        raise Forbidden("a page of another site may not call a server without keys; make a key first")


def check_host(headers: Mapping[str, str]) -> None:
    """Raises `Forbidden` if the host name of the request is not this machine's own.

    Anyone can let a name resolve to 127.0.0.1, and a page of that name can then call the server. A proxy that listens
    elsewhere forwards its own name.
    """
    host = headers.get("host", "")
    if not _is_own(host):
        name = _host_name(host)
        raise Forbidden(f"a server without keys does not answer to the name {name!r}; make a key first")


@lru_cache(maxsize=64)
def _is_own(host: str) -> bool:
    name = _host_name(host)
    return "." not in name or _is_loopback(name)


def _host_name(host: str) -> str:
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return host


def _is_loopback(name: str) -> bool:
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return name.endswith(".localhost")
