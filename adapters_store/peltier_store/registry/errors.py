"""Errors of the registry.

RegistryError           the database itself failed, or cannot be used
  x NotRegistered       the named record does not exist
    - TenantUnknown
    - AdapterUnknown
    - VersionUnknown    the adapter exists, but not the version or alias
    - KeyUnknown
    - FileUnknown
    - TrainingUnknown
    - BatchUnknown
  x RegistryConflict    an existing record forbids the change
  x InvalidRecord       a given value breaks a rule
  x RegistryGone        the database is missing, damaged, or another registry
  x RegistryRewound     the database lacks a change that was read: read everything again
  x RegistryFull        the database's disk is full
  x QuotaReached        the tenant would own more than it may
    - TrainingTooLarge  one training has more examples than any of the tenant's may have
    - TrainingWaits     the tenant has enough trainings that have not ended, or has trained enough today
  x LeaseLost           another process has taken the training or the batch
  x BlobBusy            a collector is deleting the bytes, or may have deleted them: store them again
"""

from peltier_adapters.errors import AdapterError


class RegistryError(AdapterError):
    """An operation of the registry failed."""


class NotRegistered(RegistryError):
    """The named record does not exist."""


class TenantUnknown(NotRegistered):
    """No tenant has this name."""


class AdapterUnknown(NotRegistered):
    """The tenant has no live adapter of this name."""


class VersionUnknown(NotRegistered):
    """The adapter has no such version or alias."""


class KeyUnknown(NotRegistered):
    """No key has this prefix."""


class FileUnknown(NotRegistered):
    """The tenant has no file of this id."""


class TrainingUnknown(NotRegistered):
    """The tenant has no training of this id."""


class BatchUnknown(NotRegistered):
    """The tenant has no batch of this id."""


class RegistryConflict(RegistryError):
    """An existing record forbids the change."""


class InvalidRecord(RegistryError):
    """A value breaks a rule of the registry."""


class RegistryGone(RegistryError):
    """The database is not the one that this process opened, so acknowledged changes would be lost."""


class RegistryRewound(RegistryError):
    """The database lacks a change that this process has read: it was restored, or has lost changes in a crash."""


class RegistryFull(RegistryError):
    """The database's disk is full; it can still be read."""


class QuotaReached(RegistryError):
    """The tenant would own more than its quotas allow."""


class TrainingTooLarge(QuotaReached):
    """A training has more examples than the tenant's quota allows, whatever else the tenant has."""


class TrainingWaits(QuotaReached):
    """The tenant may begin a further training once one of its trainings has ended, or on another day."""


class BlobBusy(RegistryError):
    """A collector is deleting these bytes or may have deleted them; store them again."""


class LeaseLost(RegistryError):
    """The process that holds a training or a batch has lost it, and must not go on with it."""
