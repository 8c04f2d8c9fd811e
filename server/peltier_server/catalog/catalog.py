"""The published adapters in memory, so that predictions need no database."""

from bisect import bisect_left, bisect_right, insort
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain, islice, takewhile

from peltier_client.errors import AdapterNotFound
from peltier_client.protocol.names import TaskReference

from peltier_server.catalog.published import Entry, Published
from peltier_server.context import AdapterKey, RequestContext

_NEVER = datetime.min.replace(tzinfo=UTC)

# More than a page of the gauges for endpoint pickers lists.
_KEPT_REFERENCES = 4096


class Catalog:
    """Every adapter of every tenant, as the registry has recorded it. Belongs to the event loop.

    The time of a lookup does not depend on the number of adapters. Names are kept sorted, so pages need no sorting.
    """

    def __init__(self) -> None:
        self._adapters: dict[tuple[str, str], Published] = {}
        self._names: dict[str, list[str]] = {}
        self._pinned: dict[tuple[str, str], Published] = {}
        # The versions of a tenant with the same bytes, mostly one, by the names of their adapters.
        self._owners: dict[AdapterKey, dict[str, list[Entry]]] = {}
        # The references of some of them, because they are read many times a second.
        self._references: dict[AdapterKey, tuple[str, ...]] = {}

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

    def pinned(self) -> list[AdapterKey]:
        """The versions that answer the bare name of a pinned adapter, in the order of their pins."""
        pinned = sorted(self._pinned.values(), key=lambda one: one.pin.pinned_at if one.pin else _NEVER)
        return list(dict.fromkeys(entry.owned for published in pinned for entry in published.answering))

    def holds(self, owned: AdapterKey) -> bool:
        """Whether a live version of the tenant has these bytes."""
        return owned in self._owners

    def references(self, owned: AdapterKey) -> tuple[str, ...]:
        """The references to the live versions of the tenant with these bytes: `name`, if it may mean such a version,
        and `name@version`; for a public adapter also with the tenant before them."""
        known = self._references.get(owned)
        if known is None:
            known = tuple(self._refer(owned))
            if len(self._references) >= _KEPT_REFERENCES:
                self._references.clear()
            self._references[owned] = known
        return known

    def _refer(self, owned: AdapterKey) -> Iterator[str]:
        for entry in chain.from_iterable(self._owners.get(owned, {}).values()):
            published = self._adapters[owned.tenant, entry.version.name]
            names = [f"{published.name}@{entry.number}"]
            if published.answers_bare(entry):
                names.insert(0, published.name)
            yield from names
            if published.is_public:
                yield from (f"{owned.tenant}:{name}" for name in names)

    def replace(self, tenant: str, name: str, published: Published | None) -> set[AdapterKey]:
        """Replaces an adapter in one step; None removes it.

        Returns the keys that no live version of the tenant has any more.
        """
        old = self._adapters.get((tenant, name))
        gone = self._own(name, old, published)
        if published is not None:
            self._adapters[tenant, name] = published
        elif old is not None:
            del self._adapters[tenant, name]
        self._pinned.pop((tenant, name), None)
        if published is not None and published.pin is not None:
            self._pinned[tenant, name] = published
        self._list(tenant, name, was_there=old is not None, is_there=published is not None)
        return gone

    def become(self, other: "Catalog") -> set[AdapterKey]:
        """Replaces all adapters by those of another catalog in one step; returns the keys that no version has any
        more."""
        gone = self._owners.keys() - other._owners.keys()
        vars(self).update(vars(other))
        return gone

    def _own(self, name: str, old: Published | None, new: Published | None) -> set[AdapterKey]:
        """Replaces the versions of the adapter `name` among the owners of their bytes. Returns the keys without an
        owner; `holds` stays true for keys that stay."""
        new_owners = defaultdict[AdapterKey, list[Entry]](list)
        for entry in _entries(new):
            new_owners[entry.owned].append(entry)
        gone = set[AdapterKey]()
        for owned in new_owners.keys() | {entry.owned for entry in _entries(old)}:
            self._references.pop(owned, None)
            owners = self._owners.setdefault(owned, {})
            owners.pop(name, None)
            if owned in new_owners:
                owners[name] = new_owners[owned]
            if not owners:
                del self._owners[owned]
                gone.add(owned)
        return gone

    def _list(self, tenant: str, name: str, *, was_there: bool, is_there: bool) -> None:
        names = self._names.setdefault(tenant, [])
        if is_there and not was_there:
            insort(names, name)
        elif was_there and not is_there:
            del names[bisect_left(names, name)]
        if not names:
            del self._names[tenant]


def _entries(published: Published | None) -> list[Entry]:
    return [] if published is None else list(published.entries.values())
