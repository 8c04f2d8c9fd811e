"""How much time authentication and quotas add to a request: microseconds, medians of many batches.

    .venv/bin/python benchmarks/authentication.py [--redis redis://127.0.0.1:6379] [--keys 10000]

It times these steps: authentication (`Authenticator.caller`), admission by the tenant's quotas, the charge for tokens,
and the rate headers of the answer. Tokens of an identity provider are signed with RS256.
"""

import asyncio
import json
import statistics
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import jwt
from common.options import create_parser
from cryptography.hazmat.primitives.asymmetric import rsa
from peltier_server.auth.authenticator import Authenticator
from peltier_server.auth.credentials import Credentials
from peltier_server.auth.keyring import OPERATOR, Keyring
from peltier_server.auth.oidc import OidcTokens, Provider
from peltier_server.quotas.enforcer import QuotaEnforcer
from peltier_server.quotas.rates import Rates
from peltier_store.registry import Key, Quotas, RegistrySnapshot, TenantRecord
from starlette.datastructures import Headers

_NUM_BATCHES, _BATCH = 41, 100
_SCOPES = frozenset({"predict"})
_LIMITED = Quotas(requests_per_second=10**7, tokens_per_second=10**9, max_concurrent_requests=100)
_NOW = datetime.now(UTC)


def make_keyring(num_keys: int) -> tuple[Keyring, str]:
    """A keyring of `num_keys` keys, and the text of one."""
    credentials, keyring = Credentials(b"a secret of thirty-two characters"), Keyring()
    keyring.unlock(credentials)
    issued = [credentials.issue() for _ in range(num_keys)]
    keys = tuple(Key(one.prefix, "a", one.digest, _SCOPES, "", _NOW, "", None, None) for one in issued)
    keyring.apply(RegistrySnapshot(1, (), (TenantRecord("a", _NOW, Quotas()),), keys))
    return keyring, issued[num_keys // 2].text


@contextmanager
def serving_keys(keys: bytes) -> Iterator[str]:
    """An identity provider's address of its public keys, while the block runs."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(keys)

        def log_message(self, *_: object) -> None:
            """Nothing else is printed."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as provider:
        threading.Thread(target=provider.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{provider.server_port}/keys"
        provider.shutdown()


def make_token() -> tuple[bytes, str]:
    """A provider's public keys, and one of its tokens."""
    private = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    key = {**jwt.algorithms.RSAAlgorithm.to_jwk(private.public_key(), as_dict=True), "kid": "k"}
    claims = {
        "iss": "issuer",
        "aud": "peltier",
        "sub": "ada",
        "exp": time.time() + 600,
        "tenant": "a",
        "scope": "predict",
    }
    return json.dumps({"keys": [key]}).encode(), jwt.encode(claims, private, "RS256", headers={"kid": "k"})


async def measure(name: str, call: Callable[[], Awaitable[object]]) -> None:
    """Prints the time of one call."""
    taken = []
    for _ in range(_NUM_BATCHES):
        started = time.perf_counter()
        for _ in range(_BATCH):
            await call()
        taken.append((time.perf_counter() - started) / _BATCH * 1e6)
    print(f"{name:52} {statistics.median(taken):8.1f} µs")


def visit(enforcer: QuotaEnforcer) -> Callable[[], Awaitable[None]]:
    """One whole request of 32 tokens."""

    async def call() -> None:
        async with enforcer.slot("a") as slot:
            async with enforcer.spend("a", 32):
                pass
            await slot.headers(200)

    return call


async def main(redis: str | None, num_keys: int) -> None:
    """Measures each step alone."""
    keyring, key = make_keyring(num_keys)
    keys, token = make_token()
    with serving_keys(keys) as url:  # they are fetched once, by the first token
        tokens = OidcTokens(Provider("issuer", "peltier", url))
        authenticator = Authenticator(
            keyring, fixed_keys={"the operator's": OPERATOR}, tokens=tokens, may_be_open=False
        )
        for name, text in (("admin key", "the operator's"), (f"key, one of {num_keys}", key), ("token, RS256", token)):
            headers = Headers({"authorization": f"Bearer {text}"})
            await measure(name, lambda headers=headers: authenticator.caller(headers))
    await measure("quotas, tenant without quotas", visit(QuotaEnforcer(Rates(), lambda _: Quotas())))
    await measure("quotas, at a time only", visit(QuotaEnforcer(Rates(), lambda _: Quotas(max_concurrent_requests=9))))
    await measure("quotas, requests and tokens, memory", visit(QuotaEnforcer(Rates(), lambda _: _LIMITED)))
    if redis is not None:
        rates = Rates(redis)
        await measure("quotas, requests and tokens, Redis", visit(QuotaEnforcer(rates, lambda _: _LIMITED)))
        await rates.close()


if __name__ == "__main__":
    parser = create_parser(__doc__)
    parser.add_argument("--redis", help="also count in this Redis")
    parser.add_argument("--keys", type=int, default=10_000, help="keys in the keyring")
    given = parser.parse_args()
    asyncio.run(main(given.redis, given.keys))
