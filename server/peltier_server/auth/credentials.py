"""API keys: made at random, shown once, kept as an HMAC under the server's secret."""

import hmac
import re
import secrets
from base64 import urlsafe_b64encode
from dataclasses import dataclass, field

# Nothing in a prefix can be mistaken for something else when it is read aloud or typed.
_PREFIX_ALPHABET = "abcdefghjkmnpqrstuvwxyz23456789"
_PREFIX_LEN = 8
# Of a whole key; its public prefix is the group.
KEY_PATTERN = r"plt_([a-z0-9]{8})_[A-Za-z0-9_-]{43}"
_KEY = re.compile(KEY_PATTERN, re.ASCII)


@dataclass(frozen=True)
class Issued:
    """A new key: its whole text for its owner, once; its public prefix and its digest for the registry."""

    text: str = field(repr=False)
    prefix: str
    digest: str = field(repr=False)


class Credentials:
    """Makes keys and their digests. Keys have 256 random bits, so one HMAC is all the hashing that they need."""

    def __init__(self, secret: bytes) -> None:
        self._secret = secret

    def issue(self) -> Issued:
        """A key that nobody has had before: `plt_<8 public characters>_<43 of base64url>`."""
        prefix = "".join(secrets.choice(_PREFIX_ALPHABET) for _ in range(_PREFIX_LEN))
        random = urlsafe_b64encode(secrets.token_bytes(32)).rstrip(b"=").decode()
        text = f"plt_{prefix}_{random}"
        return Issued(text, prefix, self.digest(text))

    def digest(self, key: str) -> str:
        """HMAC-SHA256 of the whole key, in hexadecimal."""
        # Not `hmac.digest`, which lets go of the interpreter: every request would then wait for whatever a thread of
        # Python does next, milliseconds where bodies are being parsed.
        return hmac.new(self._secret, key.encode(), "sha256").hexdigest()

    def matches(self, key: str, digest: str) -> bool:
        """Whether `digest` is this key's; takes as long for a wrong key as for the right one."""
        return hmac.compare_digest(self.digest(key), digest)


def prefix_of(key: str) -> str | None:
    """The public part of a key; None for text that is not of a key's form."""
    found = _KEY.fullmatch(key)
    return found[1] if found else None
