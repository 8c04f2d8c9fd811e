"""Bearer tokens of an OpenID Connect provider, if the settings name one, and the provider's public keys."""

import asyncio
import json
import logging
import re
import ssl
import time
from dataclasses import dataclass
from typing import Any

import httpx2
import jwt
from jwt import PyJWK, PyJWKSet
from peltier_client.errors import Unauthorized, Unavailable

from peltier_server import retry_hints
from peltier_server.auth.keyring import ALL_SCOPES, Caller

logger = logging.getLogger(__name__)

FRESH_SECONDS = 300.0
# How long cached keys are accepted while the provider cannot be reached.
STALE_SECONDS = 3600.0
# The shortest time between two fetches, so that callers with invented key ids cannot make this server flood the
# provider.
PAUSE_SECONDS = 10.0
# The time for a whole fetch.
_TIMEOUT_SECONDS = 5.0
# Ten times the size of the largest providers' key sets.
_MAX_KEY_SET_BYTES = 256 * 1024
# How long a token with a known key waits for a fetch. After the fetch, a key that the provider has withdrawn is
# refused.
_COURTESY_SECONDS = 0.5

# Both algorithms are asymmetric, so an attacker cannot use a public key as a shared secret.
_ALGORITHMS = ["RS256", "ES256"]
_REQUIRED = ["exp", "iss", "aud", "sub"]
# The clocks of two machines differ.
_LEEWAY_SECONDS = 10
_TOKEN = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*", re.ASCII)


_OUTAGE = {"outage": "identity provider"}


async def _fetch_keys(url: str, trusted: ssl.SSLContext) -> PyJWKSet:
    """The key set at `url`. Raises `ValueError` if it is too large or no JSON object."""
    body = bytearray()
    # An answer that is not compressed, because its bytes are counted.
    async with (
        httpx2.AsyncClient(verify=trusted, timeout=None) as client,
        client.stream("GET", url, headers={"accept-encoding": "identity"}) as answer,
    ):
        answer.raise_for_status()
        async for piece in answer.aiter_raw():
            body += piece
            # Pieces that have arrived already would otherwise be read in one turn of the event loop.
            await asyncio.sleep(0)
            if len(body) > _MAX_KEY_SET_BYTES:
                raise ValueError(f"they have more than {_MAX_KEY_SET_BYTES} bytes")
    keys = json.loads(body)
    if not isinstance(keys, dict):
        raise ValueError("they are no JSON object")
    return await asyncio.to_thread(PyJWKSet.from_dict, keys)


class KeySet:
    """The keys at `url`, by their `kid`: cached, and fetched again at most every ten seconds. It belongs to one event
    loop."""

    def __init__(self, url: str) -> None:
        self._url = url
        # The certificates that this machine trusts. To read them takes a moment.
        self._trusted = ssl.create_default_context()
        self._keys: dict[str, PyJWK] = {}
        self._fetched_at = self._tried_at = -STALE_SECONDS
        self._fetch: asyncio.Task[None] | None = None
        self._is_slow = False

    async def find(self, kid: str) -> PyJWK | None:
        """The key with the id `kid`, None if the provider has none.

        While the provider is slow or does not answer, a known key is returned at once. Raises `Unavailable` for an
        unknown key if the provider does not answer within five seconds: the token may be valid, and a 401 would make
        the caller discard it.
        """
        if kid in self._keys and self._age < FRESH_SECONDS:
            return self._keys[kid]
        await self._wait(is_known=kid in self._keys and self._age < STALE_SECONDS)
        known_missing = self._tried_at == self._fetched_at
        if self._age < STALE_SECONDS and (kid in self._keys or known_missing):
            return self._keys.get(kid)
        raise Unavailable(
            "the identity provider does not answer, so the token cannot be checked", retry_after=retry_hints.SOON
        )

    @property
    def _age(self) -> float:
        return time.monotonic() - self._fetched_at

    async def _wait(self, *, is_known: bool) -> None:
        """Starts a fetch if one is due and waits for it: up to five seconds for an unknown key, and briefly or not
        at all for a known one.
        """
        if self._fetch is None and time.monotonic() - self._tried_at >= PAUSE_SECONDS:
            self._tried_at = time.monotonic()
            self._fetch = asyncio.create_task(self._refresh())
        if self._fetch is None or (is_known and self._is_slow):
            return
        seconds = _COURTESY_SECONDS if is_known else _TIMEOUT_SECONDS
        # The fetch continues when the wait, or the request that waits, ends first.
        _, pending = await asyncio.wait({self._fetch}, timeout=seconds)
        self._is_slow = self._is_slow or bool(pending)

    async def _refresh(self) -> None:
        try:
            async with asyncio.timeout(_TIMEOUT_SECONDS):
                keys = await _fetch_keys(self._url, self._trusted)
        except Exception as error:  # the provider may answer anything
            reason = f"not within {_TIMEOUT_SECONDS:g} s" if isinstance(error, TimeoutError) else error
            logger.warning("the keys at %s cannot be fetched: %s", self._url, reason, extra=_OUTAGE)
            self._is_slow = True
            return
        finally:
            self._fetch = None
        self._keys = {key.key_id: key for key in keys.keys if key.key_id is not None}
        self._fetched_at, self._is_slow = self._tried_at, False


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
