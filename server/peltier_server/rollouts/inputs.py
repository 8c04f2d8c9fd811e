"""The digest of an input that is kept for feedback."""

import hashlib

from peltier_client.protocol import Input
from pydantic_core import to_json

_HASH_DIGITS = 32


def hash_input(value: Input) -> str:
    """The SHA-256 of an input as JSON, its first 32 digits."""
    return hashlib.sha256(to_json(value)).hexdigest()[:_HASH_DIGITS]
