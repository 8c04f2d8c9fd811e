"""Tokens of a small real identity provider: keys over HTTP, and every way in which a token can be wrong."""

import asyncio
import base64
import itertools
import json
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Event, Semaphore, Thread
from typing import Any

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm
from peltier_client.errors import Unauthorized, Unavailable
from peltier_server.extensions.oidc import tokens as oidc
from peltier_server.extensions.oidc.tokens import OidcTokens, Provider

from tests.server.conftest import Serve, until

RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
CURVE = ec.generate_private_key(ec.SECP256R1())
STRANGER = rsa.generate_private_key(public_exponent=65537, key_size=2048)


class IdentityProvider:
    """Serves its public keys, counts who asks, and signs."""

    def __init__(self) -> None:
        self.public = [
            {**json.loads(RSAAlgorithm.to_jwk(RSA.public_key())), "kid": "rsa", "use": "sig"},
            {**json.loads(ECAlgorithm.to_jwk(CURVE.public_key())), "kid": "curve", "use": "sig"},
        ]
        self.num_fetches = 0
        self.asked = Semaphore(0)
        self.is_up = True
        self.answers = Event()
        self.answers.set()
        self.pieces: Iterable[bytes] | None = None  # sent in place of the keys
        self.is_chunked = False
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.num_fetches += 1
                provider.asked.release()
                provider.answers.wait()
                self.send_response(200 if provider.is_up else 500)
                if provider.is_chunked:
                    self.send_header("transfer-encoding", "chunked")
                self.end_headers()
                with suppress(ConnectionError):
                    for piece in provider.pieces or [json.dumps({"keys": provider.public}).encode()]:
                        self.wfile.write(piece if provider.is_up else b"")

            def log_message(self, *_: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def provider(self) -> Provider:
        """The settings of a server that trusts it."""
        return Provider(self.url, "peltier", f"{self.url}/keys")

    def token(self, *, key=RSA, kid="rsa", algorithm="RS256", leave_out="", **claims):
        """A valid token with the given changes."""
        good = {"iss": self.url, "aud": "peltier", "sub": "ada", "exp": time.time() + 60, "tenant": "a"}
        body = {**good, "scope": "openid predict publish", **claims}
        body.pop(leave_out, None)
        return jwt.encode(body, key, algorithm, headers={"kid": kid})


@pytest.fixture
def idp(monkeypatch: pytest.MonkeyPatch) -> Iterator[IdentityProvider]:
    """A provider on a real socket, which servers wait long for."""
    monkeypatch.setattr(oidc, "_TIMEOUT_SECONDS", 60.0)
    provider = IdentityProvider()
    thread = Thread(target=provider.server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield provider
    provider.answers.set()
    provider.server.shutdown()
    thread.join()
    provider.server.server_close()


@pytest.mark.parametrize(("key", "kid", "algorithm"), [(RSA, "rsa", "RS256"), (CURVE, "curve", "ES256")])
async def test_a_good_token_says_who_calls(idp: IdentityProvider, key: Any, kid: str, algorithm: str) -> None:
    """Tenant, scopes and a name for the audit log come from its claims; words that are no scopes are left out."""
    caller = await OidcTokens(idp.provider()).caller(idp.token(key=key, kid=kid, algorithm=algorithm))
    assert (caller.tenant, caller.scopes, caller.actor) == ("a", {"predict", "publish"}, "oidc:ada")


async def test_claims_have_the_names_that_the_settings_give(idp: IdentityProvider) -> None:
    """Providers differ; scopes may also be a list."""
    provider = Provider(idp.url, "peltier", f"{idp.url}/keys", tenant_claim="org", scope_claim="roles")
    caller = await OidcTokens(provider).caller(idp.token(org="b", roles=["admin", "metrics", 7]))
    assert (caller.tenant, caller.scopes) == ("b", {"admin", "metrics"})


def none_token(idp: IdentityProvider) -> str:
    """A token without a signature."""
    return jwt.encode(jwt.decode(idp.token(), options={"verify_signature": False}), None, "none", {"kid": "rsa"})


def confused_token(idp: IdentityProvider) -> str:
    """Signed with the public key as if it were a shared secret; by hand, because the library refuses to."""
    public = RSA.public_key().public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    head = base64.urlsafe_b64encode(b'{"alg":"HS256","kid":"rsa","typ":"JWT"}').rstrip(b"=").decode()
    body = idp.token().split(".")[1]
    signature = jwt.algorithms.HMACAlgorithm(jwt.algorithms.HMACAlgorithm.SHA256).sign(
        f"{head}.{body}".encode(), public
    )
    return f"{head}.{body}.{base64.urlsafe_b64encode(signature).rstrip(b'=').decode()}"


WRONG: dict[str, Callable[[IdentityProvider], str]] = {
    "another audience": lambda idp: idp.token(aud="another"),
    "another issuer": lambda idp: idp.token(iss="https://another.example"),
    "expired": lambda idp: idp.token(exp=time.time() - 60),
    "not yet valid": lambda idp: idp.token(nbf=time.time() + 60),
    "another's signature": lambda idp: idp.token(key=STRANGER),
    "unknown kid": lambda idp: idp.token(kid="another"),
    "signed by nobody": none_token,
    "the public key as a secret": confused_token,
    "an algorithm not accepted": lambda idp: idp.token(algorithm="RS512"),
    "another key's algorithm": lambda idp: idp.token(key=CURVE, kid="rsa", algorithm="ES256"),
    "no expiry": lambda idp: idp.token(leave_out="exp"),
    "no issuer": lambda idp: idp.token(leave_out="iss"),
    "no audience": lambda idp: idp.token(leave_out="aud"),
    "no subject": lambda idp: idp.token(leave_out="sub"),
    "no tenant": lambda idp: idp.token(leave_out="tenant"),
    "a tenant that is no text": lambda idp: idp.token(tenant=["a"]),
    "not a token": lambda idp: "a.b.c",
}


@pytest.mark.parametrize("why", WRONG)
async def test_a_wrong_token_is_refused(idp: IdentityProvider, why: str) -> None:
    with pytest.raises(Unauthorized):
        await OidcTokens(idp.provider()).caller(WRONG[why](idp))


def slowly() -> Iterator[bytes]:
    """A byte at a time, without an end."""
    while True:
        time.sleep(0.01)
        yield b" "


@pytest.mark.parametrize(
    ("pieces", "reason"),
    [
        (itertools.repeat(b" " * 65_536), "they have more than 262144 bytes"),
        (slowly(), "not within 0.5 s"),
        ([b"[]"], "they are no JSON object"),
        ([b"[" * 100_000], "maximum recursion depth exceeded"),
        ([b'{"keys": [7]}'], "The JWK Set did not contain any usable keys"),
    ],
    ids=["endless", "slow", "no object", "nested", "no key"],
)
async def test_what_is_no_key_set_is_not_waited_for(pieces, reason, idp, monkeypatch, caplog):
    """Its bytes and its time are bounded, and the log has one sentence. The next fetch may succeed."""
    monkeypatch.setattr(oidc, "_TIMEOUT_SECONDS", 0.5 if reason.startswith("not within") else 60.0)
    idp.pieces, tokens = pieces, OidcTokens(idp.provider())
    with pytest.raises(Unavailable, match="the identity provider does not answer"):
        await tokens.caller(idp.token())
    await until(lambda: caplog.messages)
    (message,) = caplog.messages
    assert message.startswith(f"the keys at {idp.url}/keys cannot be fetched: {reason}")
    monkeypatch.setattr(oidc, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(oidc, "_TIMEOUT_SECONDS", 60.0)
    idp.pieces = None
    assert (await tokens.caller(idp.token())).tenant == "a"


async def test_small_pieces_leave_turns_to_others(idp: IdentityProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    """One for each piece, also where many have arrived at once."""
    idp.is_chunked, idp.pieces = True, [b"1\r\n \r\n" * 5000 + b"0\r\n\r\n"]
    taken, most, read = 0, 0, httpx2.Response.aiter_raw

    async def counted(answer: httpx2.Response) -> AsyncIterator[bytes]:
        nonlocal taken
        async for piece in read(answer):
            taken += 1
            yield piece

    monkeypatch.setattr(httpx2.Response, "aiter_raw", counted)
    asking = asyncio.create_task(OidcTokens(idp.provider()).caller(idp.token()))
    while not asking.done():
        before = taken
        await asyncio.sleep(0)
        most = max(most, taken - before)
    assert isinstance(asking.exception(), Unavailable)
    assert (taken, most) == (5000, 1)


async def test_keys_are_fetched_once(idp: IdentityProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unknown key ids do not make the server fetch keys for each."""
    monkeypatch.setattr(oidc, "PAUSE_SECONDS", 3600.0)
    tokens = OidcTokens(idp.provider())
    for number in range(20):
        await tokens.caller(idp.token())
        with pytest.raises(Unauthorized):
            await tokens.caller(idp.token(kid=f"made-up-{number}"))
    assert idp.num_fetches == 1


async def test_a_new_key_is_found(idp: IdentityProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    """Providers change their keys; an unknown id is looked up once the pause is over."""
    monkeypatch.setattr(oidc, "PAUSE_SECONDS", 0.0)
    tokens = OidcTokens(idp.provider())
    await tokens.caller(idp.token())
    idp.public.append({**json.loads(RSAAlgorithm.to_jwk(STRANGER.public_key())), "kid": "new"})
    assert (await tokens.caller(idp.token(key=STRANGER, kid="new"))).tenant == "a"


async def test_a_key_that_is_withdrawn_ends(idp: IdentityProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oidc, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(oidc, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(oidc, "_COURTESY_SECONDS", 60.0)
    tokens = OidcTokens(idp.provider())
    await tokens.caller(idp.token())
    del idp.public[0]
    with pytest.raises(Unauthorized):
        await tokens.caller(idp.token())


async def test_a_provider_that_does_not_answer_is_no_verdict(idp, monkeypatch):
    """503 with a time to come back, because the token may be good."""
    monkeypatch.setattr(oidc, "PAUSE_SECONDS", 3600.0)
    idp.is_up = False
    tokens = OidcTokens(idp.provider())
    for _ in range(3):
        with pytest.raises(Unavailable) as caught:
            await tokens.caller(idp.token())
    assert caught.value.retry_after == 1.0
    assert idp.num_fetches == 1


async def test_known_keys_outlive_an_outage(idp: IdentityProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    """For an hour at most; ids that are not known cannot be told meanwhile."""
    monkeypatch.setattr(oidc, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(oidc, "FRESH_SECONDS", 0.0)
    tokens = OidcTokens(idp.provider())
    await tokens.caller(idp.token())
    idp.is_up = False
    await tokens.caller(idp.token())
    with pytest.raises(Unavailable):
        await tokens.caller(idp.token(kid="another"))
    monkeypatch.setattr(oidc, "STALE_SECONDS", 0.0)
    with pytest.raises(Unavailable):
        await tokens.caller(idp.token())


async def call_for_ever(tokens: OidcTokens, token: str) -> None:
    while True:
        await tokens.caller(token)
        await asyncio.sleep(0.001)


async def test_a_provider_that_hangs_is_waited_for_once(idp: IdentityProvider, monkeypatch: pytest.MonkeyPatch) -> None:
    """And briefly, by those whose key is known; once it answers again, what it says holds."""
    monkeypatch.setattr(oidc, "PAUSE_SECONDS", 0.0)
    monkeypatch.setattr(oidc, "FRESH_SECONDS", 0.0)
    monkeypatch.setattr(oidc, "_TIMEOUT_SECONDS", 600.0)
    tokens = OidcTokens(idp.provider())
    await tokens.caller(idp.token())
    idp.asked.acquire()
    idp.answers.clear()
    del idp.public[0]
    waits, wait = [], asyncio.wait

    def counted(*tasks: Any, **how_long: float) -> Any:
        waits.append(how_long["timeout"])
        return wait(*tasks, **how_long)

    monkeypatch.setattr(asyncio, "wait", counted)
    for _ in range(20):
        await tokens.caller(idp.token())
    seen = list(waits)
    await asyncio.to_thread(idp.asked.acquire)
    idp.answers.set()
    with pytest.raises(Unauthorized):
        await call_for_ever(tokens, idp.token())
    assert seen == [oidc._COURTESY_SECONDS]


async def test_tokens_over_http(idp: IdentityProvider, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside keys: scopes open routes, a tenant that is not here is 403, and what cannot be told 503."""
    monkeypatch.setattr(oidc, "PAUSE_SECONDS", 0.0)
    named = {"oidc_issuer": idp.url, "oidc_audience": "peltier", "oidc_jwks_url": f"{idp.url}/keys"}
    async with serve(**named) as running:

        async def status(path: str, token: str = "") -> int:
            headers = {"authorization": f"Bearer {token}"} if token else {}
            return (await running.client.get(path, headers=headers)).status_code

        assert await status("/info") == 401
        idp.is_up = False
        assert await status("/info", idp.token(tenant="default")) == 503
        idp.is_up = True
        assert await status("/info", idp.token(tenant="default")) == 200
        assert await status("/v1/keys", idp.token(tenant="default")) == 403
        assert await status("/v1/keys", idp.token(tenant="default", scope="admin")) == 200
        assert await status("/info", idp.token(tenant="nobody")) == 403
        assert await status("/info", idp.token(tenant="default", exp=time.time() - 60)) == 401


def test_what_looks_like_a_token(idp: IdentityProvider) -> None:
    """Keys do not."""
    tokens = OidcTokens(idp.provider())
    assert tokens.reads(idp.token())
    assert not tokens.reads("plt_abcdefgh_xyz")
