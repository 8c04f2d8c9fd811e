"""The secret that the server creates if none is given."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from peltier_server.auth.credentials import Credentials, load_secret, prefix_of
from peltier_server.extensions.settings import Settings, load_settings
from peltier_server.settings import SettingsError

from tests.support.power_loss import PowerLoss

CREDENTIALS = Credentials(b"a secret of the server's own")


def test_a_key_has_the_form_of_the_contract() -> None:
    issued = CREDENTIALS.issue()
    assert re.fullmatch(r"plt_[a-z0-9]{8}_[A-Za-z0-9_-]{43}", issued.text)
    assert prefix_of(issued.text) == issued.prefix


def test_no_two_keys_are_alike() -> None:
    many = [CREDENTIALS.issue() for _ in range(1000)]
    assert len({one.text for one in many}) == len({one.prefix for one in many}) == 1000


def test_a_key_matches_its_digest_alone() -> None:
    issued = CREDENTIALS.issue()
    other = issued.text[:-1] + ("A" if issued.text[-1] != "A" else "B")
    assert CREDENTIALS.matches(issued.text, issued.digest)
    assert not CREDENTIALS.matches(other, issued.digest)
    assert not Credentials(b"another secret").matches(issued.text, issued.digest)


def test_a_key_is_in_no_repr() -> None:
    """What is logged by mistake opens nothing."""
    issued = CREDENTIALS.issue()
    assert issued.text not in repr(issued)
    assert issued.digest not in repr(issued)


@pytest.mark.parametrize(
    "text",
    ["", "plt_", "plt_abcdefgh_short", f"plt_abcdefgh_{'x' * 44}", f"plt_ABCDEFGH_{'x' * 43}", "plt_é" + "x" * 50],
)
def test_other_text_is_no_key(text: str) -> None:
    assert prefix_of(text) is None


def settings_in(store: Path, **given: object) -> Settings:
    return load_settings({"store": store, **given})


def secret_in(store: Path, **given: object) -> bytes:
    settings = settings_in(store, **given)
    return load_secret(settings.auth.secret, settings.store.registry)


def test_a_secret_is_made_once(tmp_path: Path) -> None:
    """A restart finds the same one, and only its owner can read it."""
    store = tmp_path / "new"
    secret = secret_in(store)
    assert len(secret) >= 32
    assert (store / "secret").stat().st_mode & 0o777 == 0o600
    assert secret_in(store) == secret
    assert [file.name for file in store.iterdir()] == ["secret"]


def test_a_secret_has_reached_the_disk_when_it_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another one, made after a power loss, would refuse every key that was made under this one."""
    power_loss = PowerLoss(monkeypatch)
    path = tmp_path / "new" / "store" / "secret"
    secret = secret_in(path.parent)
    assert power_loss.left(path) == secret
    assert {tmp_path, *path.parents} - {*tmp_path.parents} <= power_loss.synced


def test_servers_that_start_together_agree(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(secret_in, [tmp_path] * 32))
    assert len(made) == 1


def test_a_file_that_is_no_secret_is_refused(tmp_path: Path) -> None:
    """An empty or truncated file would make every digest guessable."""
    (tmp_path / "secret").write_text("short")
    with pytest.raises(SettingsError, match="has 5 bytes; it must have at least 32"):
        secret_in(tmp_path)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match=r"the secret in .*file/secret' cannot be used: "):
        secret_in(tmp_path / "file")


def test_a_secret_of_the_settings_comes_first(tmp_path: Path) -> None:
    """And then no file is made; it is in no repr."""
    settings = settings_in(tmp_path, secret="0123456789abcdef0123456789abcdef")
    assert load_secret(settings.auth.secret, settings.store.registry) == b"0123456789abcdef0123456789abcdef"
    assert "0123456789abcdef" not in repr(settings)
    assert not list(tmp_path.iterdir())


def test_a_short_secret_is_refused_without_showing_it(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="at least 32") as caught:
        settings_in(tmp_path, secret="hunter2")
    assert "hunter2" not in str(caught.value)


def test_a_shared_registry_wants_a_shared_secret(tmp_path: Path) -> None:
    """Each replica's own would make the keys of one unknown to the others."""
    with pytest.raises(SettingsError, match="set PELTIER_SECRET, the same for all"):
        secret_in(tmp_path, registry="postgresql+asyncpg://peltier@127.0.0.1/peltier")
