"""Bearer tokens of an OpenID Connect provider, if the settings name one."""

import re
from dataclasses import dataclass
from typing import Any

import jwt
from peltier_client.errors import Unauthorized

from peltier_server.auth.caller import ALL_SCOPES, Caller
from peltier_server.auth.jwks import KeySet

# Both algorithms are asymmetric, so an attacker cannot use a public key as a shared secret.
_ALGORITHMS = ["RS256", "ES256"]
_REQUIRED = ["exp", "iss", "aud", "sub"]
# The clocks of two machines differ.
_LEEWAY_SECONDS = 10
_TOKEN = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*", re.ASCII)


@dataclass(frozen=True)
class Provider:
    """The issuer and audience of tokens, the address of its keys, and the claims that hold the tenant and the
    scopes.
    """

    issuer: str
    audience: str
    jwks_url: str
    tenant_claim: str = "tenant"
    scope_claim: str = "scope"


class OidcTokens:
    """Checks the tokens of one provider."""

    def __init__(self, provider: Provider) -> None:
        self._provider = provider
        self._keys = KeySet(provider.jwks_url)

    def reads(self, text: str) -> bool:
        """Whether `text` has the form of a token. Its content is not checked."""
        return _TOKEN.fullmatch(text) is not None

    async def caller(self, token: str) -> Caller:
        """The caller that the token names. The tenant comes from a claim of the token and need not exist.

        Raises `Unauthorized` for a token that is not valid, and `Unavailable` if the token cannot be checked.
        """
        try:
            header = jwt.get_unverified_header(token)
            key = await self._keys.find(str(header.get("kid")))
            if key is None or header.get("alg") not in _ALGORITHMS:
                raise Unauthorized("the token is signed with a key or an algorithm that this server does not accept")
            return self._read(self._verify(token, key))
        except jwt.PyJWTError as error:
            raise Unauthorized(f"the token is not accepted: {error}") from None

    def _verify(self, token: str, key: jwt.PyJWK) -> dict[str, Any]:
        return jwt.decode(
            token,
            key,
            algorithms=_ALGORITHMS,
            audience=self._provider.audience,
            issuer=self._provider.issuer,
            leeway=_LEEWAY_SECONDS,
            options={"require": _REQUIRED},
        )

    def _read(self, claims: dict[str, Any]) -> Caller:
        tenant = claims.get(self._provider.tenant_claim)
        if not isinstance(tenant, str):
            raise Unauthorized(f"the token names no tenant in its claim {self._provider.tenant_claim!r}")
        granted = claims.get(self._provider.scope_claim, "")
        words = granted.split() if isinstance(granted, str) else granted if isinstance(granted, list) else ()
        scopes = frozenset(scope for scope in ALL_SCOPES if scope in words)
        return Caller(tenant, scopes, f"oidc:{claims['sub']}")
