"""API keys: created at random, shown once, and stored as an HMAC under the server's secret."""

import contextlib
import hmac
import os
import re
import secrets
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field
from pathlib import Path

from peltier_adapters.durable import make_directory, sync
from pydantic import SecretStr

from peltier_server.settings import SettingsError

# The characters of a prefix cannot be confused with each other when a person reads them aloud or types them.
_PREFIX_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
_PREFIX_LEN = 8
# The form of a whole key; the group is its public prefix.
KEY_PATTERN = r"plt_([a-z0-9]{8})_[A-Za-z0-9_-]{43}"
_KEY = re.compile(KEY_PATTERN, re.ASCII)

_NUM_BYTES = 32
_SQLITE = "sqlite+aiosqlite:///"


@dataclass(frozen=True)
class Issued:
    """A new key: its whole text, which is shown once to its owner, and its public prefix and digest for the
    registry.
    """

    text: str = field(repr=False)
    prefix: str
    digest: str = field(repr=False)


class Credentials:
    """Creates keys and their digests. A key has 256 random bits, so one HMAC is sufficient as its hash."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def issue(self) -> Issued:
        """A new random key: `plt_<8 public characters>_<43 of base64url>`."""
        prefix = "".join(secrets.choice(_PREFIX_ALPHABET) for _ in range(_PREFIX_LEN))
        random = urlsafe_b64encode(secrets.token_bytes(32)).rstrip(b"=").decode()
        text = f"plt_{prefix}_{random}"
        return Issued(text, prefix, self.digest(text))

    def digest(self, key: str) -> str:
        """HMAC-SHA256 of the whole key, in hexadecimal."""
        # `hmac.digest` would release the interpreter. Every request would then wait for another thread of Python, which
        # takes milliseconds while bodies are being parsed.
        return hmac.new(self._secret, key.encode(), "sha256").hexdigest()

    def matches(self, key: str, digest: str) -> bool:
        """Whether `digest` is the digest of `key`. The comparison takes the same time for a wrong key as for the
        right one.
        """
        return hmac.compare_digest(self.digest(key), digest)


def prefix_of(key: str) -> str | None:
    """The public part of a key; None for text that does not have the form of a key."""
    found = _KEY.fullmatch(key)
    return found[1] if found else None


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
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
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
