"""The public keys of an identity provider: fetched in a thread, cached, and fetched again at most every ten seconds."""

import asyncio
import logging
import time
from http.client import HTTPException

from jwt import PyJWK, PyJWKClient, PyJWKClientError, PyJWKError, PyJWKSetError
from peltier_client.errors import Unavailable

from peltier_server import retry_hints

logger = logging.getLogger(__name__)

FRESH_SECONDS = 300.0
# How long cached keys are accepted while the provider cannot be reached.
STALE_SECONDS = 3600.0
# The shortest time between two fetches, so that callers with invented key ids cannot make this server flood the
# provider.
PAUSE_SECONDS = 10.0
_TIMEOUT_SECONDS = 5.0
# How long a token with a known key waits for a fetch. After the fetch, a key that the provider has withdrawn is
# refused.
_COURTESY_SECONDS = 0.5


class KeySet:
    """The keys at `url`, by their `kid`. It belongs to one event loop."""

    def __init__(self, url: str) -> None:
        # The client's own cache is off: every token would need a thread to read it.
        self._client = PyJWKClient(url, cache_jwk_set=False, timeout=_TIMEOUT_SECONDS)
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
            keys = await asyncio.to_thread(self._client.get_jwk_set)
        except (PyJWKClientError, PyJWKSetError, PyJWKError, ValueError, OSError, HTTPException) as error:
            logger.warning("the keys at %s cannot be fetched: %s", self._client.uri, error)
            self._is_slow = True
            return
        finally:
            self._fetch = None
        self._keys = {key.key_id: key for key in keys.keys if key.key_id is not None}
        self._fetched_at, self._is_slow = self._tried_at, False
