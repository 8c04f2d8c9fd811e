"""Where an adapter is in the memory of this replica, and its pin in that of all."""

import os
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice

from fastapi import Response
from peltier_client.errors import (
    AdapterNotFound,
    Draining,
    Forbidden,
    InferenceFailed,
    InvalidInput,
    NotReady,
    QuotaExceeded,
    StorageFull,
    TooLarge,
    Unauthorized,
    Unavailable,
)
from peltier_client.protocol import AdapterPin, AdapterPlacement, PinRequest, VersionPlacement

from peltier_server.catalog.published import Entry, Published
from peltier_server.errors import describe_errors
from peltier_server.http.application import Accepted, Changing, Context
from peltier_server.http.scoped_route import scoped_router
from peltier_server.service import Service

_SHARED = (Unauthorized, Forbidden, InvalidInput, QuotaExceeded, NotReady, Draining, AdapterNotFound)
_OF_PINS = (*_SHARED, StorageFull, TooLarge, InferenceFailed, Unavailable)
# Versions beside those of the bare name. To look one up takes a while where many adapters are in memory.
_NUM_OTHERS = 32

router = scoped_router("predict", "placement", "/v1/adapters/{name}")
changes = scoped_router("publish", "placement", "/v1/adapters/{name}")


@router.get("/placement", responses=describe_errors(*_SHARED))
async def get_placement(name: str, context: Context, service: Accepted) -> AdapterPlacement:
    """Where an adapter is in the memory of the replica that answers, since when and why, and its pin."""
    return _describe(service, service.catalog.get(context.tenant, name))


@changes.put("/pin", responses=describe_errors(*_OF_PINS))
async def pin_adapter(name: str, body: PinRequest, context: Context, service: Changing) -> AdapterPlacement:
    """Keep the versions that answer the bare name in the memory of every replica. This replica has loaded them when it
    answers."""
    await service.version_admin.pin(context.caller, name, body.tier)
    return _describe(service, service.catalog.get(context.tenant, name))


@changes.delete("/pin", status_code=204, response_class=Response, responses=describe_errors(*_SHARED, Unavailable))
async def unpin_adapter(name: str, context: Context, service: Changing) -> None:
    """Release the pin of an adapter, if it has one: it stays in memory until it is evicted."""
    await service.version_admin.unpin(context.caller, name)


def _describe(service: Service, published: Published) -> AdapterPlacement:
    return AdapterPlacement(
        name=published.name,
        replica=f"{socket.gethostname()}:{os.getpid()}",
        pin=None if published.pin is None else AdapterPin.model_validate(published.pin, from_attributes=True),
        versions=[_place(service, published, entry) for entry in _chosen(service, published)],
    )


def _chosen(service: Service, published: Published) -> Iterator[Entry]:
    """The versions of the bare name, and the newest others that are in memory."""
    live = published.live
    yield from published.answering
    others = (published.entries[number] for number in sorted(published.entries, reverse=True) if number not in live)
    yield from islice((entry for entry in others if service.slots.tier(entry.owned) is not None), _NUM_OTHERS)


def _place(service: Service, published: Published, entry: Entry) -> VersionPlacement:
    now, at = time.monotonic(), datetime.now(UTC)
    found = service.slots.locate(entry.owned)
    is_there = found.tier != "store"
    failure = service.pins.failures.get(entry.owned)
    return VersionPlacement(
        version=entry.number,
        share=published.live.get(entry.number, 0.0),
        tier=found.tier,
        pinned=found.pinned_in is not None,
        since=at - timedelta(seconds=now - found.loaded_at) if is_there else None,
        last_used_at=at - timedelta(seconds=now - found.used_at) if is_there else None,
        in_use=found.num_leases,
        reason=found.explain(now) + (f"; its pin has failed: {failure}" if failure is not None else ""),
    )
