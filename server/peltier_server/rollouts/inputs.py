"""What is kept of inputs: a digest for feedback, and a vector for drift."""

import hashlib
from collections.abc import Sequence

import numpy as np
from peltier_backbone.text.packing import Encoded
from peltier_client.protocol import Input
from pydantic_core import to_json

from peltier_server.metrics.drift import VECTOR_BYTES

_HASH_DIGITS = 32


def hash_input(value: Input) -> str:
    """The SHA-256 of an input as JSON, its first 32 digits."""
    return hashlib.sha256(to_json(value)).hexdigest()[:_HASH_DIGITS]


def vectors_of(inputs: Sequence[Sequence[Encoded]]) -> list[bytes]:
    """The vectors of inputs, each of which is the windows of a text: the mean over its tokens of a random vector of
    each token, whose numbers are 0 or 255. This is a random projection of the bag of tokens (Achlioptas 2003,
    Database-friendly random projections), rounded to bytes.

    Vectors do not tell the text, and are the same on every device and in every precision. That of a token is the first
    32 bits of its hash, by the finaliser of SplitMix64 (Steele et al. 2014).
    """
    if not inputs:
        return []
    ids = [[token for window in windows for token in window.ids] for windows in inputs]
    lengths = np.array([len(own) for own in ids])
    hashed = np.fromiter((token for own in ids for token in own), dtype="<u8")
    hashed += np.uint64(0x9E3779B97F4A7C15)
    hashed = (hashed ^ (hashed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    hashed = (hashed ^ (hashed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    hashed ^= hashed >> np.uint64(31)
    bits = np.unpackbits(hashed.view(np.uint8).reshape(-1, 8)[:, : VECTOR_BYTES // 8], axis=1)  # [tokens, numbers]
    sums = np.add.reduceat(bits, np.cumsum(lengths) - lengths, axis=0, dtype=np.int64)
    return [row.tobytes() for row in np.rint(255 * sums / lengths[:, None]).astype(np.uint8)]
