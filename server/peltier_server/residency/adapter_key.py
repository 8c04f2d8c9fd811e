"""The key of an adapter in memory."""

from typing import NamedTuple


class AdapterKey(NamedTuple):
    """A tenant and the digest of an artifact. Two tenants with the same artifact have two copies in memory, so that
    neither can learn from a tier or a load time that the other has it."""

    tenant: str
    digest: str
