"""The pin of an adapter, which every replica follows."""

from fastapi import Response
from peltier_client.errors import (
    AdapterNotFound,
    InferenceFailed,
    StorageFull,
    TooLarge,
    Unavailable,
)
from peltier_client.protocol.adapters import AdapterPin, PinRequest

from peltier_server.errors import scoped_errors
from peltier_server.http.application import Changing, Context
from peltier_server.http.scoped_route import scoped_router

_OF_PINS = (AdapterNotFound, StorageFull, TooLarge, InferenceFailed, Unavailable)

changes = scoped_router("publish", "pins", "/v1/adapters/{name}")


@changes.put("/pin", responses=scoped_errors(*_OF_PINS))
async def pin_adapter(name: str, body: PinRequest, context: Context, service: Changing) -> AdapterPin:
    """Keep the versions that answer the bare name on the device of every replica. This replica has loaded them when it
    answers."""
    pin = await service.version_admin.pin(context.caller, name)
    return AdapterPin.model_validate(pin, from_attributes=True)


@changes.delete("/pin", status_code=204, response_class=Response, responses=scoped_errors(AdapterNotFound, Unavailable))
async def unpin_adapter(name: str, context: Context, service: Changing) -> None:
    """Release the pin of an adapter, if it has one: it stays in memory until it is evicted."""
    await service.version_admin.unpin(context.caller, name)
