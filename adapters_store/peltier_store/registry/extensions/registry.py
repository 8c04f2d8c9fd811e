"""The registry with the operations of extensions."""

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

from sqlalchemy import URL, Connection

from peltier_store.registry.extensions.batches import BatchRegistry
from peltier_store.registry.extensions.files import FileRegistry, forget_abandoned
from peltier_store.registry.extensions.idempotency import forget_keys
from peltier_store.registry.extensions.rollouts import RolloutRegistry
from peltier_store.registry.extensions.training_state import count_unfinished, find_minutes, forget_minutes
from peltier_store.registry.extensions.trainings import TrainingRegistry
from peltier_store.registry.records import QuotaUsage
from peltier_store.registry.registry import CoreRegistry
from peltier_store.registry.tenants import read_usage
from peltier_store.registry.transactions import WriteTransaction, read_clock


class Registry(CoreRegistry):
    """A registry that also has files, trainings, batches and rollouts.

    A purge removes examples whose training was never created, times of trainings that no longer count, and old keys of
    requests too.
    """

    forgetting: ClassVar[tuple[Callable[[WriteTransaction], None], ...]] = (
        forget_abandoned,
        forget_minutes,
        forget_keys,
    )

    def __init__(self, url: URL) -> None:
        super().__init__(url)
        self.files = FileRegistry(self._transactions)
        self.trainings = TrainingRegistry(self._transactions)
        self.batches = BatchRegistry(self._transactions)
        self.rollouts = RolloutRegistry(self._transactions)

    async def usage(self, tenant: str) -> QuotaUsage:
        """What counts for the tenant's quotas. Raises TenantUnknown."""

        def work(connection: Connection) -> QuotaUsage:
            minutes = find_minutes(connection, tenant, read_clock(connection))
            unfinished = count_unfinished(connection, tenant)
            return replace(read_usage(connection, tenant), num_trainings=unfinished, training_minutes=minutes)

        return await self._transactions.read(work)
