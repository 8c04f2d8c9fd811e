"""Keys of blobs in a store, which are made from their digests."""

import re

from peltier_store.blobs.location import BlobError

FOLDER = "sha256"
_DIGEST = re.compile(r"sha256:([0-9a-f]{64})")


def blob_key(digest: str) -> str:
    """The key of the blob with this digest; raises BlobError for a malformed digest."""
    match = _DIGEST.fullmatch(digest)
    if match is None:
        raise BlobError(f"the digest {digest!r} is not 'sha256:' and 64 lower-case hexadecimal digits")
    return f"{FOLDER}/{match[1]}"


def digest_in(key: str) -> str | None:
    """The digest of the blob with this key; None if the key is not a blob's."""
    digest = key.replace("/", ":")
    return digest if _DIGEST.fullmatch(digest) else None
