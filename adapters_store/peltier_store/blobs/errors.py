"""How a blob store fails: each a BlobError of one sentence."""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

from obstore.exceptions import BaseError

from peltier_store.blobs.location import BlobError

# No space left on the device; the user's quota of it is used up.
_FULL = (errno.ENOSPC, errno.EDQUOT)
# How S3, Google and Azure name what is wrong, in their XML.
_CODE = re.compile(r"<Code>([^<]+)</Code>")


class BlobNotFound(BlobError):
    """The blob store holds no blob of that digest."""


class BlobDamaged(BlobError):
    """What is stored under the digest are other bytes."""


class BlobStoreGone(BlobError):
    """The store is missing, or another one is in its place."""


class BlobStoreFull(BlobError):
    """The store has no room for more bytes."""


@contextmanager
def as_blob_errors(failure: str) -> Iterator[None]:
    """Whatever the store raises in the block, as a BlobError that begins with `failure`."""
    try:
        yield
    except (BaseError, OSError, ValueError) as error:
        kind = BlobStoreFull if _is_full(error) else BlobError
        raise kind(f"{failure}: {_reason(error)}") from error


def _is_full(error: Exception) -> bool:
    if isinstance(error, OSError) and error.errno in _FULL:
        return True
    # obstore tells the system's number in words alone.
    return any(f"(os error {number})" in str(error) for number in _FULL)


def _reason(error: Exception) -> str:
    """What the store says of it, without its XML and without obstore's own internals, which follow the first line."""
    line = str(error).partition("\n")[0].partition("<?xml")[0].rstrip(" :")
    code = _CODE.search(str(error))
    return f"{line} ({code[1]})" if code and code[1] not in line else line
