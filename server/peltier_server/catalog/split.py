"""Splits of requests between versions."""

import math
from bisect import bisect_right
from collections.abc import Mapping
from hashlib import blake2b
from itertools import accumulate

_SUM_TOLERANCE = 1e-6
_HASH_BYTES = 8
_KEY_BYTES = 32


class Split:
    """The versions of an alias, each with its share of requests.

    The hash of the request id chooses the version, so the same id always gets the same version, and many ids get the
    shares. If the shares of two versions change, as few ids as possible change their version; with three or more
    versions it may be more. `salt` makes the splits of different aliases independent.
    """

    def __init__(self, shares: Mapping[int, float], salt: str) -> None:
        self._numbers = [number for number in sorted(shares) if shares[number] > 0]
        self._bounds = list(accumulate(shares[number] for number in self._numbers))
        self._key = blake2b(salt.encode(), digest_size=_KEY_BYTES).digest()

    def choose(self, request_id: str) -> int:
        """The version that answers the request with this id."""
        if len(self._numbers) == 1:
            return self._numbers[0]
        digest = blake2b(request_id.encode(), digest_size=_HASH_BYTES, key=self._key).digest()
        point = int.from_bytes(digest, "big") / 2 ** (8 * _HASH_BYTES)
        # If the shares sum to slightly less than 1, the last version gets the rest.
        return self._numbers[min(bisect_right(self._bounds, point), len(self._numbers) - 1)]


def split_faults(shares: Mapping[int, float]) -> list[str]:
    """Every reason why these shares are invalid, without a look at the versions."""
    if not shares:
        return ["versions is empty: a split names at least one version"]
    faults = [
        f"version {number} has the share {share}: it must be a number above 0"
        for number, share in sorted(shares.items())
        if not (math.isfinite(share) and share > 0)
    ]
    total = math.fsum(shares.values()) if not faults else 1.0
    if abs(total - 1) > _SUM_TOLERANCE:
        faults.append(f"the shares sum to {total:g}: they must sum to 1")
    return faults
