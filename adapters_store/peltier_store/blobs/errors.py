"""Errors of the blob store."""

import errno
import re
from collections.abc import Iterator
from contextlib import contextmanager

from obstore.exceptions import BaseError
from peltier_adapters.errors import AdapterError

# The disk is full, or the user's quota of it is used up.
_FULL = (errno.ENOSPC, errno.EDQUOT)
# The error code in the XML of S3, Google Cloud Storage and Azure.
_CODE = re.compile(r"<Code>([^<]+)</Code>")


class BlobError(AdapterError):
    """An operation of the blob store failed."""


class BlobNotFound(BlobError):
    """The blob store holds no blob of that digest."""


class BlobDamaged(BlobError):
    """The stored bytes do not have the digest that names them."""


class BlobStoreGone(BlobError):
    """The store is missing or was replaced by another one."""


class BlobStoreFull(BlobError):
    """The store's disk is full."""


@contextmanager
def as_blob_errors(failure: str) -> Iterator[None]:
    """Raises errors of the store in the block as a BlobError that begins with `failure`."""
    try:
        yield
    except (BaseError, OSError, ValueError) as error:
        kind = BlobStoreFull if _is_full(error) else BlobError
        raise kind(f"{failure}: {_reason(error)}") from error


def _is_full(error: Exception) -> bool:
    if isinstance(error, OSError) and error.errno in _FULL:
        return True
    # obstore gives the system's error number only in its message.
    return any(f"(os error {number})" in str(error) for number in _FULL)


def _reason(error: Exception) -> str:
    """The store's message, without its XML and without obstore's internals, which follow the first line."""
    line = str(error).partition("\n")[0].partition("<?xml")[0].rstrip(" :")
    code = _CODE.search(str(error))
    return f"{line} ({code[1]})" if code and code[1] not in line else line
