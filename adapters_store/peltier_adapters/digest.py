"""Digests, which name bytes by their contents."""

import hashlib


def digest_of(data: bytes) -> str:
    """The digest of these bytes: "sha256:" and 64 hexadecimal digits."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"
