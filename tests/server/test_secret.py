"""The secret that is made when none is given."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from peltier_server.secret import load_secret
from peltier_server.settings import SettingsError


def test_a_secret_is_made_once(tmp_path: Path) -> None:
    """A restart finds the same one, and only its owner can read it."""
    path = tmp_path / "new" / "secret"
    secret = load_secret(path)
    assert len(secret) >= 32
    assert path.stat().st_mode & 0o777 == 0o600
    assert load_secret(path) == secret
    assert [file.name for file in path.parent.iterdir()] == ["secret"]


def test_servers_that_start_together_agree(tmp_path: Path) -> None:
    """Whoever comes second takes the first one's."""
    with ThreadPoolExecutor(8) as pool:
        made = set(pool.map(load_secret, [tmp_path / "secret"] * 32))
    assert len(made) == 1


def test_a_file_that_is_no_secret_is_refused(tmp_path: Path) -> None:
    """An empty or truncated file would make every digest guessable."""
    path = tmp_path / "secret"
    path.write_text("short")
    with pytest.raises(SettingsError, match="has 5 bytes; it must have at least 32"):
        load_secret(path)


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    """One sentence, not a traceback."""
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match=r"the secret in .*file/secret' cannot be used: "):
        load_secret(tmp_path / "file" / "secret")
