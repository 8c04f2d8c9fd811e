"""What the registry can refuse.

RegistryError           the database itself failed, or cannot be used
  x NotRegistered       what was named is not there
    - TenantUnknown
    - AdapterUnknown
    - VersionUnknown    the adapter is there, the version or alias is not
    - KeyUnknown
  x RegistryConflict    what is there stands against it
  x InvalidRecord       what was given breaks a rule
  x RegistryGone        the database is missing, another one, older than it was, or damaged
  x RegistryFull        the database has no room for more
  x QuotaReached        the tenant would own more than it may
  x BlobBusy            the bytes are just being collected, or were: try again from the start
"""

from peltier_adapters.errors import AdapterError


class RegistryError(AdapterError):
    """The registry could not do what was asked of it."""


class NotRegistered(RegistryError):
    """What was named is not in the registry."""


class TenantUnknown(NotRegistered):
    """No tenant has this name."""


class AdapterUnknown(NotRegistered):
    """The tenant has no live adapter of this name."""


class VersionUnknown(NotRegistered):
    """The adapter has no such version or alias."""


class KeyUnknown(NotRegistered):
    """No key has this prefix."""


class RegistryConflict(RegistryError):
    """What the registry already holds stands against it."""


class InvalidRecord(RegistryError):
    """A value breaks a rule of the registry."""


class RegistryGone(RegistryError):
    """The database is not the one that this process has opened: what it acknowledged would be lost."""


class RegistryFull(RegistryError):
    """The database's disk is full; it can still be read."""


class QuotaReached(RegistryError):
    """The tenant would own more adapters or bytes than its quotas allow."""


class BlobBusy(RegistryError):
    """A collector is deleting these bytes or may have deleted them; storing them anew will do."""
