"""The published adapters in memory, so that predictions need no database."""

from bisect import bisect_left, bisect_right, insort
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain, islice, takewhile

from peltier_client.errors import AdapterNotFound
from peltier_client.protocol import TaskReference
from peltier_store.registry import AdapterRecord

from peltier_server.catalog.published import Entry, Published
from peltier_server.context import RequestContext
from peltier_server.residency.leases import AdapterKey
from peltier_server.residency.slots import ResidentTier

_NEVER = datetime.min.replace(tzinfo=UTC)


class Catalog:
    """Every adapter of every tenant, as the registry has recorded it. Belongs to the event loop.

    The time of a lookup does not depend on the number of adapters. Names are kept sorted, so pages need no sorting.
    """

    def __init__(self) -> None:
        self._adapters: dict[tuple[str, str], Published] = {}
        self._names: dict[str, list[str]] = {}
        self._owned: Counter[AdapterKey] = Counter()
        self._pinned: dict[tuple[str, str], Published] = {}

    def __len__(self) -> int:
        return len(self._adapters)

    def count(self, tenant: str) -> int:
        """The number of a tenant's adapters."""
        return len(self._names.get(tenant, ()))

    def get(self, tenant: str, name: str) -> Published:
        """A tenant's own adapter; raises `AdapterNotFound`."""
        published = self.find(tenant, name)
        if published is None:
            raise AdapterNotFound(f"adapter {name!r} does not exist")
        return published

    def find(self, tenant: str, name: str) -> Published | None:
        """A tenant's own adapter, if it exists."""
        return self._adapters.get((tenant, name))

    def resolve(self, reference: TaskReference, context: RequestContext) -> Entry:
        """The version that answers `reference` for `context`.

        Another tenant's adapter is there only if it is public; otherwise nothing tells it from one that does not exist.
        """
        owner = reference.tenant or context.tenant
        published = self._adapters.get((owner, reference.name))
        if published is None or not (published.is_public or owner == context.tenant):
            named = f"{reference.tenant}:{reference.name}" if reference.tenant else reference.name
            raise AdapterNotFound(f"adapter {named!r} does not exist")
        return published.choose(reference, context.request_id)

    def meant_by(self, task: str, tenant: str) -> list[Entry]:
        """The versions that may answer a task reference of `tenant`, whoever may use them; raises `AdapterNotFound` or
        `VersionNotFound`."""
        reference = TaskReference.parse(task)
        return self.get(reference.tenant or tenant, reference.name).meant_by(reference)

    def page(self, tenant: str, *, after: str, containing: str, limit: int) -> list[Published]:
        """At most `limit` adapters of a tenant whose names follow `after` and contain `containing`, in order."""
        names = self._names.get(tenant, [])
        following = (names[place] for place in range(bisect_right(names, after), len(names)))
        found = (name for name in following if containing in name)
        return [self._adapters[tenant, name] for name in islice(found, limit)]

    def names(self, tenant: str, prefix: str) -> Iterator[str]:
        """The names of a tenant's adapters that begin with `prefix`, in order."""
        names = self._names.get(tenant, [])
        following = (names[place] for place in range(bisect_left(names, prefix), len(names)))
        return takewhile(lambda name: name.startswith(prefix), following)

    def entries(self) -> Iterator[Entry]:
        """Every live version."""
        return chain.from_iterable(published.entries.values() for published in self._adapters.values())

    def entries_of(self, tenant: str) -> Iterator[Entry]:
        """Every live version of a tenant. Any thread may ask; a version that comes or goes then may be missing."""
        adapters = (self.find(tenant, name) for name in list(self._names.get(tenant, ())))
        return chain.from_iterable(published.entries.values() for published in adapters if published is not None)

    def pinned(self) -> dict[AdapterKey, ResidentTier]:
        """The tier of each version that answers the bare name of a pinned adapter, in the order of their pins."""
        found: dict[AdapterKey, ResidentTier] = {}
        for published in sorted(self._pinned.values(), key=lambda one: one.pin.pinned_at if one.pin else _NEVER):
            for entry in published.answering:
                # The device keeps bytes that two adapters of a tenant share.
                tier: ResidentTier = "device" if published.pin and published.pin.tier == "device" else "host"
                found[entry.owned] = "device" if found.get(entry.owned) == "device" else tier
        return found

    def holds(self, owned: AdapterKey) -> bool:
        """Whether a live version of the tenant has these bytes."""
        return owned in self._owned

    def replace(self, tenant: str, name: str, published: Published | None) -> set[AdapterKey]:
        """Replaces an adapter in one step; None removes it.

        Returns the keys that no live version of the tenant has any more.
        """
        old = self._adapters.get((tenant, name))
        # Adds before it removes, so that `holds` stays true for keys that stay.
        self._owned.update(_owned_by(published))
        self._owned.subtract(_owned_by(old))
        gone = {owned for owned in _owned_by(old) if not self._owned[owned]}
        for owned in gone:
            del self._owned[owned]
        if published is not None:
            self._adapters[tenant, name] = published
        elif old is not None:
            del self._adapters[tenant, name]
        self._pinned.pop((tenant, name), None)
        if published is not None and published.pin is not None:
            self._pinned[tenant, name] = published
        self._list(tenant, name, was_there=old is not None, is_there=published is not None)
        return gone

    def apply(self, record: AdapterRecord) -> set[AdapterKey]:
        """Replaces an adapter by its record in the registry."""
        published = Published.of(record, self.find(record.tenant, record.name))
        return self.replace(record.tenant, record.name, published)

    def _list(self, tenant: str, name: str, *, was_there: bool, is_there: bool) -> None:
        names = self._names.setdefault(tenant, [])
        if is_there and not was_there:
            insort(names, name)
        elif was_there and not is_there:
            del names[bisect_left(names, name)]
        if not names:
            del self._names[tenant]


def _owned_by(published: Published | None) -> list[AdapterKey]:
    return [] if published is None else [entry.owned for entry in published.entries.values()]
