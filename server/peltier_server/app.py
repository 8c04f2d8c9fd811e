"""The app factory: wiring, nothing else."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from importlib.metadata import version as release_of

from fastapi import FastAPI, Security
from fastapi.routing import APIRoute
from fastapi.security import HTTPBearer

from peltier_server.auth import Guard
from peltier_server.errors import install_handlers
from peltier_server.lifecycle import Lifecycle
from peltier_server.metrics import Metrics
from peltier_server.observer import Observer
from peltier_server.routes import adapters, openai, operations, predict
from peltier_server.service import Service
from peltier_server.settings import Settings

_DESCRIPTION = "Any mix of adapters in one batch, over one frozen backbone."
# What the parts of a multipart body need besides the artifact.
_FORM_BYTES = 64 * 1024
# Guard checks the key; this is how OpenAPI shows that there is one.
_BEARER = Security(HTTPBearer(auto_error=False, description="The server's API key, where it has one."))


def create_app(settings: Settings) -> FastAPI:
    """An app that loads in the background once it is started: `/health` answers at once, `/ready` when it is."""
    lifecycle, metrics = Lifecycle(), Metrics()

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        loading = asyncio.create_task(_load(settings, lifecycle, metrics))
        yield
        lifecycle.drain()
        loading.cancel()
        service = (await asyncio.gather(loading, return_exceptions=True))[0]
        if isinstance(service, Service):
            await service.close()

    app = FastAPI(
        title="Peltier",
        version=release_of("peltier"),
        description=_DESCRIPTION,
        lifespan=lifespan,
        generate_unique_id_function=_operation_id,
    )
    app.state.lifecycle, app.state.metrics = lifecycle, metrics
    install_handlers(app)
    # The last one added is the outermost.
    app.add_middleware(Guard, admin_key=settings.admin_key.get_secret_value() if settings.admin_key else None)
    app.add_middleware(Observer, metrics=metrics)
    closed = [_BEARER]
    app.include_router(predict.router, dependencies=closed, max_body_size=settings.max_body_bytes)
    app.include_router(openai.router, dependencies=closed, max_body_size=settings.max_body_bytes)
    app.include_router(adapters.router, dependencies=closed, max_body_size=settings.max_body_bytes)
    app.include_router(adapters.uploads, dependencies=closed, max_body_size=settings.max_artifact_bytes + _FORM_BYTES)
    app.include_router(operations.router, dependencies=closed, max_body_size=settings.max_body_bytes)
    app.include_router(operations.probes, max_body_size=settings.max_body_bytes)
    return app


async def _load(settings: Settings, lifecycle: Lifecycle, metrics: Metrics) -> Service | None:
    try:
        service = await Service.open(settings, metrics)
    except Exception as failure:
        lifecycle.fail(failure)
        return None
    lifecycle.start(service)
    return service


def _operation_id(route: APIRoute) -> str:
    return route.name
