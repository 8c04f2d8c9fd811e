"""An identity provider's public keys: fetched in a thread, kept, and asked for again with restraint."""

import asyncio
import logging
import time

from jwt import PyJWK, PyJWKClient, PyJWKClientError, PyJWKError, PyJWKSetError
from peltier_client.errors import Unavailable

logger = logging.getLogger(__name__)

FRESH_SECONDS = 300.0
# How long keys are still believed while the provider cannot be reached.
STALE_SECONDS = 3600.0
# Between two fetches at least: whoever sends made-up key ids must not make this server flood the provider.
PAUSE_SECONDS = 10.0
_TIMEOUT_SECONDS = 5.0


class KeySet:
    """The keys at `url`, by their `kid`. Belongs to one event loop."""

    def __init__(self, url: str) -> None:
        # Its own cache would be asked from a thread for every token.
        self._client = PyJWKClient(url, cache_jwk_set=False, timeout=_TIMEOUT_SECONDS)
        self._keys: dict[str, PyJWK] = {}
        self._fetched_at = self._tried_at = -STALE_SECONDS
        self._fetching = asyncio.Lock()

    async def find(self, kid: str) -> PyJWK | None:
        """The key of that id, None where the provider has none.

        Raises `Unavailable` where that cannot be told because the provider does not answer: the token may be good, and
        a 401 would make its bearer throw it away.
        """
        if kid in self._keys and self._age < FRESH_SECONDS:
            return self._keys[kid]
        async with self._fetching:
            if time.monotonic() - self._tried_at >= PAUSE_SECONDS:
                await self._fetch()
        known_missing = self._tried_at == self._fetched_at
        if self._age < STALE_SECONDS and (kid in self._keys or known_missing):
            return self._keys.get(kid)
        raise Unavailable("the identity provider does not answer, so the token cannot be checked", retry_after=1.0)

    @property
    def _age(self) -> float:
        return time.monotonic() - self._fetched_at

    async def _fetch(self) -> None:
        self._tried_at = time.monotonic()
        try:
            keys = await asyncio.to_thread(self._client.get_jwk_set)
        except (PyJWKClientError, PyJWKSetError, PyJWKError, ValueError) as error:
            logger.warning("the keys at %s cannot be fetched: %s", self._client.uri, error)
            return
        self._keys = {key.key_id: key for key in keys.keys if key.key_id is not None}
        self._fetched_at = self._tried_at
