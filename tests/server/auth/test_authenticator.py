"""Which callers are accepted, and as which tenant."""

import hmac
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest
from peltier_client.errors import Forbidden, NotReady, Unauthorized
from peltier_client.protocol.administration import TenantInfo, TenantQuotas
from peltier_server.auth.authenticator import Authenticator
from peltier_server.auth.credentials import Credentials, Issued
from peltier_server.auth.keyring import LOCAL, MONITOR, OPERATOR, Caller, Keyring
from peltier_server.settings import SettingsError
from peltier_store.registry.records import Key, Position, RegistrySnapshot
from starlette.datastructures import Headers

NOW = datetime.now(UTC)
ADMIN = "the operator's own"
MONITORING = "the monitor's own"
CREDENTIALS = Credentials(b"a secret")

MakeDoor = Callable[..., Authenticator]


class EveryToken:
    def reads(self, text: str) -> bool:
        return text.count(".") == 2

    async def caller(self, token: str) -> Caller:
        return Caller(token.partition(".")[0], frozenset({"predict"}), "oidc:ada")


def snapshot_of(*keys: Key) -> RegistrySnapshot:
    tenants = (TenantInfo(name=name, created_at=NOW, quotas=TenantQuotas()) for name in ("default", "a"))
    return RegistrySnapshot(Position(1, "1"), (), tuple(tenants), keys)


def key_of(issued: Issued, *, expires_at: datetime | None = None, revoked_at: datetime | None = None) -> Key:
    scopes = frozenset({"predict"})
    return Key(issued.prefix, "a", issued.digest, scopes, "", NOW, "operator", expires_at, revoked_at)


def make_authenticator(*, may_be_open: bool = True, **given: Any) -> Authenticator:
    """An authenticator whose keyring is unlocked and has not read the registry yet."""
    keyring = Keyring()
    keyring.unlock(CREDENTIALS)
    return Authenticator(keyring, may_be_open=may_be_open, **given)


async def who(authenticator: Authenticator, text: str | None) -> Caller:
    return await authenticator.caller(Headers({} if text is None else {"authorization": f"Bearer {text}"}))


async def test_without_keys_the_door_is_open() -> None:
    """Everyone who reaches a server on loopback is its operator."""
    authenticator = make_authenticator()
    authenticator.apply(snapshot_of())
    assert await who(authenticator, None) == LOCAL
    assert await who(authenticator, "plt_whatever") == LOCAL


@pytest.mark.parametrize(
    ("headers", "let_in"),
    [
        ({"host": "127.0.0.1:8000"}, True),
        ({"host": "localhost:8000", "origin": "http://localhost:8000"}, True),
        ({"host": "[::1]:8000"}, True),
        ({"host": "127.0.0.1:8000", "origin": "https://evil.example"}, False),
        ({"host": "127.0.0.1:8000", "origin": "null"}, False),
        ({"host": "127.0.0.1:8000", "origin": "http://127.0.0.1:3000"}, False),
        ({"host": "evil.example:8000"}, False),
        ({"host": "evil.example:8000", "origin": "http://evil.example:8000"}, False),
        ({"host": "192.168.1.7"}, False),
        ({"host": "[broken"}, True),
    ],
)
async def test_an_open_door_is_for_this_machine(headers: dict[str, str], let_in: bool) -> None:
    """Not for pages of other sites that a browser here shows, nor for whom a proxy lets through."""
    authenticator = make_authenticator()
    authenticator.apply(snapshot_of())
    if let_in:
        assert await authenticator.caller(Headers(headers)) == LOCAL
    else:
        with pytest.raises(Forbidden, match="make a key first"):
            await authenticator.caller(Headers(headers))


async def test_an_insecure_door_has_any_name() -> None:
    """That is what was asked for; other sites' pages are still kept out."""
    keyring = Keyring()
    keyring.unlock(CREDENTIALS)
    authenticator = Authenticator(keyring, may_be_open=True, any_host=True)
    authenticator.apply(snapshot_of())
    assert await authenticator.caller(Headers({"host": "peltier.example"})) == LOCAL
    with pytest.raises(Forbidden):
        await authenticator.caller(Headers({"host": "peltier.example", "origin": "https://evil.example"}))


async def test_a_key_is_taken_from_anywhere() -> None:
    """A page can only send one that it was given."""
    authenticator, issued = make_authenticator(), CREDENTIALS.issue()
    authenticator.apply(snapshot_of(key_of(issued)))
    headers = {"host": "peltier.example", "origin": "https://console.example", "authorization": f"Bearer {issued.text}"}
    assert (await authenticator.caller(Headers(headers))).tenant == "a"


async def test_the_first_key_shuts_it_at_once() -> None:
    """For strangers too who are on the same machine."""
    authenticator, issued = make_authenticator(), CREDENTIALS.issue()
    authenticator.apply(snapshot_of())
    authenticator.apply(snapshot_of(key_of(issued)))
    with pytest.raises(Unauthorized, match="no key was sent"):
        await who(authenticator, None)
    assert await who(authenticator, issued.text) == Caller("a", frozenset({"predict"}), f"key:{issued.prefix}")


async def test_revoking_the_last_key_does_not_open_it() -> None:
    """Otherwise the owner of a revoked key could return as operator."""
    authenticator, issued = make_authenticator(), CREDENTIALS.issue()
    authenticator.apply(snapshot_of(key_of(issued, revoked_at=NOW)))
    with pytest.raises(Unauthorized, match=f"the API key {issued.prefix} was revoked"):
        await who(authenticator, issued.text)
    with pytest.raises(Unauthorized):
        await who(authenticator, None)


@pytest.mark.parametrize(
    ("header", "sentence"),
    [
        (None, "no key was sent"),
        ("", "no key was sent"),
        ("Bearer ", "no key was sent"),
        ("Basic dTpw", "another scheme was sent"),
        ("plt_abcdefgh_secret", "another scheme was sent"),
        ("Bearer plt_wrong", "the API key is not one of this server's"),
        (f"Bearer plt_zzzzzzzz_{'x' * 43}", "the API key is not one of this server's"),
    ],
)
async def test_a_missing_key_is_told_from_a_wrong_one(header: str | None, sentence: str) -> None:
    """What was sent is in no message: it may be a key."""
    authenticator = make_authenticator()
    authenticator.apply(snapshot_of(key_of(CREDENTIALS.issue())))
    with pytest.raises(Unauthorized, match=sentence) as caught:
        await authenticator.caller(Headers({} if header is None else {"authorization": header}))
    assert "secret" not in str(caught.value)


async def test_a_wrong_key_is_a_stranger() -> None:
    """The right prefix with another secret is told nothing about the key; nor are other schemes than Bearer."""
    authenticator, issued = make_authenticator(), CREDENTIALS.issue()
    authenticator.apply(snapshot_of(key_of(issued, revoked_at=NOW)))
    forged = f"plt_{issued.prefix}_{'x' * 43}"
    unknown = f"plt_zzzzzzzz_{'x' * 43}"
    messages = set()
    for text in (forged, unknown):
        with pytest.raises(Unauthorized) as caught:
            await who(authenticator, text)
        messages.add(str(caught.value))
    assert len(messages) == 1
    with pytest.raises(Unauthorized):
        await authenticator.caller(Headers({"authorization": f"Basic {issued.text}"}))


async def test_the_admin_key_is_in_no_registry() -> None:
    """It works before the registry is read; until then no other caller is accepted."""
    authenticator = make_authenticator(fixed_keys={ADMIN: OPERATOR})
    assert await who(authenticator, ADMIN) == OPERATOR
    with pytest.raises(Unauthorized):
        await who(authenticator, None)
    with pytest.raises(NotReady):
        await who(authenticator, CREDENTIALS.issue().text)
    authenticator.apply(snapshot_of())
    for text in (None, "", "wrong", "schlüssel"):
        with pytest.raises(Unauthorized):
            await who(authenticator, text)


async def test_the_metrics_key_is_in_no_registry() -> None:
    """It lets in who watches, before the registry is read too, and does not shut a server that has no other key."""
    authenticator = make_authenticator(fixed_keys={ADMIN: OPERATOR, MONITORING: MONITOR})
    assert await who(authenticator, MONITORING) == MONITOR
    assert await who(authenticator, ADMIN) == OPERATOR
    alone = make_authenticator(fixed_keys={MONITORING: MONITOR})
    alone.apply(snapshot_of())
    assert await who(alone, MONITORING) == MONITOR
    assert await who(alone, None) == LOCAL
    with pytest.raises(SettingsError, match="the server would be open to the network and has no key"):
        make_authenticator(fixed_keys={MONITORING: MONITOR}, may_be_open=False).apply(snapshot_of())


@pytest.mark.parametrize("empty", [{"": OPERATOR}, {ADMIN: OPERATOR, "": MONITOR}])
async def test_an_empty_key_opens_nothing(empty: dict[str, Caller]) -> None:
    authenticator = make_authenticator(fixed_keys=empty)
    authenticator.apply(snapshot_of())
    for text in (None, "", " "):
        with pytest.raises(Unauthorized):
            await who(authenticator, text)


async def test_nobody_is_let_in_before_the_keys_are_known() -> None:
    """An open server is not open while it might have keys."""
    with pytest.raises(NotReady):
        await who(make_authenticator(), None)


async def test_tokens_speak_for_tenants_that_exist() -> None:
    """A provider cannot make tenants, and where there is one the door is never open."""
    authenticator = make_authenticator(tokens=EveryToken())
    authenticator.apply(snapshot_of())
    assert (await who(authenticator, "a.b.c")).tenant == "a"
    with pytest.raises(Forbidden, match="tenant 'z' is not one of this server's"):
        await who(authenticator, "z.b.c")
    with pytest.raises(Unauthorized):
        await who(authenticator, None)


def test_a_server_that_would_let_nobody_in_does_not_start() -> None:
    """Nor one that would let everybody in from the network, unless that is asked for."""
    with pytest.raises(SettingsError, match="open to the network and has no key"):
        make_authenticator(may_be_open=False).apply(snapshot_of())
    for authenticator in (
        make_authenticator(),
        make_authenticator(fixed_keys={ADMIN: OPERATOR}, may_be_open=False),
        make_authenticator(tokens=EveryToken()),
    ):
        authenticator.apply(snapshot_of())
    make_authenticator(may_be_open=False).apply(snapshot_of(key_of(CREDENTIALS.issue())))


async def test_a_key_costs_one_digest(monkeypatch: pytest.MonkeyPatch) -> None:
    authenticator, issued, digests = make_authenticator(), CREDENTIALS.issue(), list[str]()
    authenticator.apply(snapshot_of(key_of(issued)))
    new = hmac.new
    monkeypatch.setattr(hmac, "new", lambda key, text, name: digests.append(name) or new(key, text, name))
    await who(authenticator, issued.text)
    for text in (f"plt_{issued.prefix}_{'x' * 43}", f"plt_zzzzzzzz_{'x' * 43}"):
        with pytest.raises(Unauthorized):
            await who(authenticator, text)
    assert digests == ["sha256"] * 3
