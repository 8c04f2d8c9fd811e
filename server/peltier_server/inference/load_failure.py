"""The error of a caller whose adapter cannot be loaded."""

import logging

from peltier_adapters.errors import AdapterError
from peltier_client.errors import InferenceFailed, PeltierError, Unavailable
from peltier_store.blobs.blobs import BlobDamaged, BlobError, BlobNotFound, BlobStoreGone

from peltier_server import retry_hints
from peltier_server.catalog.entry import Entry

logger = logging.getLogger(__name__)


def load_failure(entry: Entry, request_id: str, error: AdapterError) -> PeltierError:
    """The error for the caller. The log alone says where the store is and how it fails."""
    version = entry.version
    what = f"adapter {version.name!r} version {version.number} cannot be loaded"
    if not isinstance(error, BlobError):
        return InferenceFailed(f"{what}: {error}")
    if isinstance(error, BlobStoreGone):
        # The log already has one record that the store is gone.
        return Unavailable(f"{what}, as the server's store is gone", retry_after=retry_hints.SOON)
    # Callers of a public adapter are other tenants, so only the log tells where the store is and how it fails.
    logger.error("request %s: %s's %s: %s", request_id, version.tenant, what, error)
    reason = "the server's log has the reason under this request's x-request-id"
    if isinstance(error, BlobNotFound | BlobDamaged):
        return InferenceFailed(f"{what}, as its stored bytes are missing or damaged; {reason}")
    return Unavailable(f"{what} just now; {reason}", retry_after=retry_hints.SOON)
