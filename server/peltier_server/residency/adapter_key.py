"""What memory holds adapters by."""

from typing import NamedTuple


class AdapterKey(NamedTuple):
    """A tenant's bytes, by their digest. What two tenants have of the same bytes is kept twice in memory, so that
    neither can tell by a tier or a load's time that the other has them."""

    tenant: str
    digest: str
