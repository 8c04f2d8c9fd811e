"""The server's secret, which keys the digests of API keys in the registry."""

import contextlib
import os
import secrets
from pathlib import Path

from peltier_adapters.durable import make_directory, sync
from pydantic import SecretStr

from peltier_server.settings import SettingsError

_NUM_BYTES = 32
_SQLITE = "sqlite+aiosqlite:///"


def load_secret(secret: SecretStr | None, registry: str) -> bytes:
    """The `secret` of the settings, or the one in the file `secret` beside the SQLite registry.

    A missing file is created with a random secret, written durably and readable only by its owner. Processes that start
    at the same time agree on one secret. Raises `SettingsError` for a file that cannot be created, read or used, and
    for a registry that replicas share without a secret in the settings.
    """
    if secret is not None:
        return secret.get_secret_value().encode()
    if not registry.startswith(_SQLITE):
        raise SettingsError(
            "the registry is a server that replicas share, and so must be the secret under which it holds keys: "
            "set PELTIER_SECRET, the same for all of them"
        )
    path = Path(registry.removeprefix(_SQLITE)).parent / "secret"
    try:
        if not path.exists():
            _create(path)
        return _read(path)
    except OSError as error:
        raise SettingsError(f"the secret in {str(path)!r} cannot be used: {error.strerror}") from None


def _create(path: Path) -> None:
    make_directory(path.parent)
    whole = path.with_name(f"{path.name}.{secrets.token_hex(4)}")
    descriptor = os.open(whole, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(secrets.token_hex(_NUM_BYTES))
            file.flush()
            os.fsync(file.fileno())
        # A link never replaces a file, so the second process uses the secret of the first.
        with contextlib.suppress(FileExistsError):
            os.link(whole, path)
    finally:
        whole.unlink()
    sync(path.parent)


def _read(path: Path) -> bytes:
    text = path.read_bytes().strip()
    if len(text) < _NUM_BYTES:
        raise SettingsError(f"the secret in {str(path)!r} has {len(text)} bytes; it must have at least {_NUM_BYTES}")
    return text
