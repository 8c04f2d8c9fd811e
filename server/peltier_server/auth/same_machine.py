"""Whether a request to a server without keys comes from this machine's own programs, not through a browser or proxy."""

import ipaddress
from functools import lru_cache
from urllib.parse import urlsplit

from peltier_client.errors import Forbidden
from starlette.datastructures import Headers


def check_origin(headers: Headers) -> None:
    """Raises `Forbidden` for what a page of another site has sent: browsers name it, and it may post a form unasked."""
    origin = headers.get("origin")
    if origin is not None and urlsplit(origin).netloc != headers.get("host"):
        raise Forbidden("a page of another site may not call a server without keys; make a key first")


def check_host(headers: Headers) -> None:
    """Raises `Forbidden` where the request was sent to a name that is not this machine's own.

    Anyone can point a name at 127.0.0.1 and let a browser's page of that name call it, and a proxy that listens
    elsewhere passes its own name on.
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
