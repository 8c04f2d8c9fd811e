"""Identifies the caller: the operator, the bearer of a key or a token, or any caller on an open server.

An open server answers only programs on this machine, not browsers on pages of other sites, and not proxies.
"""

import hmac
import ipaddress
from collections.abc import Mapping
from functools import lru_cache
from typing import Protocol
from urllib.parse import urlsplit

from peltier_client.errors import Forbidden, NotReady, Unauthorized
from peltier_store.registry.records import RegistrySnapshot

from peltier_server import retry_hints
from peltier_server.auth.credentials import prefix_of
from peltier_server.auth.keyring import LOCAL, MONITOR, OPERATOR, Caller, Keyring
from peltier_server.settings import AuthSettings, NetworkSettings, SettingsError


class TokenReader(Protocol):
    """Checks the tokens of an identity provider."""

    def reads(self, text: str) -> bool:
        """Whether `text` has the form of a token."""

    async def caller(self, token: str) -> Caller:
        """The caller that the token names."""


class Authenticator:
    """Identifies the caller of each request. Until the registry has been read, it accepts only the keys of the
    settings.

    `fixed_keys` are the keys of the settings, each with its caller. The server is open, that is, accepts callers
    without a key, only with `may_be_open`, without an admin key and an identity provider, and while the registry has no
    key. An open server refuses requests from pages of other sites and, without `any_host`, requests to a host name that
    is not this machine's own.
    """

    def __init__(
        self,
        keyring: Keyring,
        *,
        fixed_keys: Mapping[str, Caller] | None = None,
        tokens: TokenReader | None = None,
        may_be_open: bool = False,
        any_host: bool = False,
    ) -> None:
        self.keyring = keyring
        fixed_keys = fixed_keys or {}
        # An empty key would match a request without a key.
        self._fixed_keys = [(key.encode(), caller) for key, caller in fixed_keys.items() if key]
        self._tokens = tokens
        # Whether there are callers with every scope without a key in the registry.
        self.has_other_admins = OPERATOR in fixed_keys.values() or tokens is not None
        self._any_host = any_host
        self._may_be_open = may_be_open and not self.has_other_admins

    def apply(self, snapshot: RegistrySnapshot) -> None:
        """Takes over the tenants and keys of the registry. Raises `SettingsError` if the server could accept no
        caller at all.
        """
        self.keyring.apply(snapshot)
        if self.keyring.is_empty and not self.has_other_admins and not self._may_be_open:
            raise SettingsError(
                "the server would be open to the network and has no key: set PELTIER_ADMIN_KEY, make a key on loopback "
                "first, bind to 127.0.0.1, or let anyone in with --insecure"
            )

    async def caller(self, headers: Mapping[str, str]) -> Caller:
        """The caller. Raises `Unauthorized` for an unknown one, and `NotReady` if the registry has not been read
        yet.
        """
        scheme, text = _read_authorization(headers)
        if (fixed := self._fixed_caller(text)) is not None:
            return fixed
        is_open = self._may_be_open and self.keyring.is_empty
        if not is_open and not self._may_be_right(text):
            raise _refusal(scheme, text)
        if not self.keyring.is_known:
            raise NotReady("the server is still loading", retry_after=retry_hints.SOON)
        if is_open:
            return self._local(headers)
        if self._tokens is not None and self._tokens.reads(text):
            return self._at_home(await self._tokens.caller(text))
        return self.keyring.caller(text)

    def _fixed_caller(self, text: str) -> Caller | None:
        # Bytes, because `compare_digest` refuses text that is not ASCII.
        given = text.encode()
        return next((caller for key, caller in self._fixed_keys if hmac.compare_digest(given, key)), None)

    def _local(self, headers: Mapping[str, str]) -> Caller:
        """The caller of an open server. Raises `Forbidden`."""
        check_origin(headers)
        if not self._any_host:
            check_host(headers)
        return LOCAL

    def _may_be_right(self, text: str) -> bool:
        return prefix_of(text) is not None or (self._tokens is not None and self._tokens.reads(text))

    def _at_home(self, caller: Caller) -> Caller:
        if self.keyring.has_tenant(caller.tenant):
            return caller
        raise Forbidden(f"the token's tenant {caller.tenant!r} is not one of this server's")


def _read_authorization(headers: Mapping[str, str]) -> tuple[str, str]:
    """The scheme in lower case and the bearer's key or token, empty if the header is missing or has another scheme."""
    scheme, _, given = headers.get("authorization", "").partition(" ")
    return scheme.lower(), given.strip() if scheme.lower() == "bearer" else ""


def _refusal(scheme: str, text: str) -> Unauthorized:
    """The error for a missing key, for another scheme, or for text that does not have the form of a key."""
    if text:
        return Unauthorized("the API key is not one of this server's")
    # The message does not show the scheme, which may be a key that was sent without a scheme.
    found = "no key" if scheme in ("", "bearer") else "another scheme"
    return Unauthorized(f"this server needs an API key in the header 'authorization: Bearer <key>'; {found} was sent")


def create_authenticator(
    auth: AuthSettings, network: NetworkSettings, keyring: Keyring, tokens: TokenReader | None = None
) -> Authenticator:
    """The authenticator that the settings describe, which accepts `tokens` too."""
    given = ((auth.admin_key, OPERATOR), (auth.metrics_key, MONITOR))
    return Authenticator(
        keyring,
        fixed_keys={key.get_secret_value(): caller for key, caller in given if key is not None},
        tokens=tokens,
        may_be_open=network.is_private or network.insecure,
        any_host=network.insecure,
    )


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
