"""Creates the ASGI app from its components."""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from importlib.metadata import version as release_of
from typing import TypeVar

from fastapi import FastAPI
from starlette.routing import BaseRoute, Route

from peltier_server.auth.authenticator import create_authenticator
from peltier_server.auth.credentials import Credentials, load_secret
from peltier_server.auth.keyring import Keyring
from peltier_server.extension import Extension, Tracing, choose_extensions
from peltier_server.extensions.batches.extension import BATCHES
from peltier_server.extensions.console.extension import CONSOLE
from peltier_server.extensions.files.extension import FILES
from peltier_server.extensions.grpc.extension import GRPC
from peltier_server.extensions.oidc.extension import OIDC
from peltier_server.extensions.picker.extension import PICKER
from peltier_server.extensions.rollouts.extension import ROLLOUTS
from peltier_server.extensions.tracing.extension import TRACING
from peltier_server.extensions.trainings.extension import TRAININGS
from peltier_server.fairness.preparation import Preparation
from peltier_server.http.application import Application, AppState, MetricsPages
from peltier_server.http.lifecycle import Lifecycle
from peltier_server.http.request_middleware import RequestMiddleware
from peltier_server.http.scoped_route import refuse_open_routes
from peltier_server.http.uploads import UploadTurns
from peltier_server.metrics.metrics import Metrics
from peltier_server.protocols import rerank, tei, vllm
from peltier_server.protocols.oip import routes as oip
from peltier_server.protocols.oip.messages import OIP_ERRORS
from peltier_server.protocols.openai import routes as openai
from peltier_server.protocols.openai.errors import OPENAI_ERRORS
from peltier_server.quotas.enforcer import QuotaEnforcer
from peltier_server.quotas.rates import Rates
from peltier_server.routes import (
    adapters,
    administration,
    aliases,
    operations,
    pages,
    predict,
    sagemaker,
)
from peltier_server.service import Service
from peltier_server.settings import CoreSettings, SettingsError

T = TypeVar("T")
logger = logging.getLogger(__name__)

EXTENSIONS = (OIDC, TRACING, FILES, TRAININGS, ROLLOUTS, BATCHES, GRPC, PICKER, CONSOLE)

_DESCRIPTION = "Any mix of adapters in one batch, over one frozen backbone."
_ROUTERS = (
    predict.router,
    openai.router,
    rerank.router,
    tei.router,
    tei.classification,
    vllm.router,
    sagemaker.router,
    sagemaker.probes,
    oip.router,
    oip.probes,
    oip.changes,
    adapters.router,
    adapters.changes,
    adapters.uploads,
    aliases.router,
    aliases.changes,
    adapters.pins,
    administration.audit,
    administration.tenants,
    administration.keys,
    operations.router,
    operations.measures,
    operations.probes,
    pages.router,
)


def create_app(
    settings: CoreSettings,
    metrics_pages: MetricsPages | None = None,
    *,
    extensions: Sequence[Extension] = EXTENSIONS,
) -> FastAPI:
    """The ASGI app with the `extensions` that the settings do not leave out. After its start it loads in the
    background: `/health` succeeds at once, `/ready` after the load.

    With `metrics_pages`, `/metrics` has the pages of all replicas.
    """
    extensions = choose_extensions(extensions, settings, EXTENSIONS)
    for extension in extensions:
        extension.check(settings)
    tokens = _only(one.create_tokens(settings) for one in extensions)
    lifecycle, metrics, keyring = Lifecycle(), Metrics(settings.limits.max_metric_versions), Keyring()
    authenticator = create_authenticator(settings.auth, settings.network, keyring, tokens)
    enforcer = QuotaEnforcer(Rates(settings.store.rate_store), keyring.quotas)
    preparation = Preparation(settings.limits, enforcer)
    upload_turns = UploadTurns(settings.limits.max_artifact_bytes, settings.limits.stall_seconds)
    tracing = _only(one.create_tracing() for one in extensions)
    for extension in extensions:
        if extension.metrics is not None:
            metrics.group(extension.metrics)
    metrics.follow_readiness(lambda: lifecycle.problem is None)
    state = AppState(
        lifecycle,
        metrics,
        authenticator,
        enforcer,
        upload_turns,
        preparation,
        (OPENAI_ERRORS, OIP_ERRORS, tei.SPARSE_ERRORS, *(shape for one in extensions for shape in one.error_shapes)),
        metrics_pages,
        page=_only(one.page for one in extensions),
        num_files=sum(one.count_files(settings) for one in extensions),
        extensions={one.name for one in extensions} - set(settings.extensions.without_names),
    )
    app = Application(
        state,
        title="Peltier",
        version=release_of("peltier"),
        description=_DESCRIPTION,
        # The routes are added directly. `include_router` would match each request twice and would add nothing here.
        routes=_routes(extensions),
        # FastAPI's own documentation pages load scripts from the internet.
        docs_url=None,
        redoc_url=None,
        # The framework would send callers of a path with a slash at its end to the host that they name themselves.
        redirect_slashes=False,
    )
    app.router.lifespan_context = partial(_run, settings, extensions, tracing)
    tracer = None if tracing is None else tracing.tracer
    app.add_middleware(RequestMiddleware, state=state, settings=settings, tracer=tracer)
    refuse_open_routes(app, pages.KEYED_PATHS)
    return app


def _only(found: Iterable[T | None]) -> T | None:
    """The one that is not None; None if there is none."""
    return next((one for one in found if one is not None), None)


def _routes(extensions: Sequence[Extension]) -> list[BaseRoute]:
    """The core's routes and those of extensions, which may take the place of a route of the core."""
    routers = (*_ROUTERS, *(router for extension in extensions for router in extension.routers))
    return list({_address(route): route for router in routers for route in router.routes}.values())


def _address(route: BaseRoute) -> object:
    return (route.path, frozenset(route.methods or ())) if isinstance(route, Route) else route


@asynccontextmanager
async def _run(
    settings: CoreSettings,
    extensions: Sequence[Extension],
    tracing: Tracing | None,
    app: FastAPI,
) -> AsyncIterator[None]:
    """The block in which the app serves."""
    state: AppState = app.state  # type: ignore[assignment]
    opened, loaded = AsyncExitStack(), AsyncExitStack()
    if tracing is not None:
        opened.push_async_callback(_close, tracing.close)
    opened.push_async_callback(_close, state.enforcer.rates.close)
    opened.callback(state.preparation.close)
    loading = asyncio.create_task(_load(app, settings, extensions, loaded))
    opened.push_async_callback(loaded.aclose)
    opened.push_async_callback(_close, lambda: asyncio.wait([loading]))
    try:
        for extension in extensions:
            if (part := await extension.open(app, settings)) is not None:
                opened.push_async_callback(_close, part.close)
                state.started[type(part)] = part
    except SettingsError as failure:
        state.lifecycle.fail(failure)
    yield
    state.lifecycle.drain()
    loading.cancel()
    if state.lifecycle.abandoned:
        return
    await opened.aclose()


async def _close(close: Callable[[], Awaitable[object]]) -> None:
    """Closes one part. A failure keeps no other from being closed."""
    try:
        await close()
    except Exception:
        logger.exception("a part of the server could not be closed")


async def _load(app: FastAPI, settings: CoreSettings, extensions: Sequence[Extension], loaded: AsyncExitStack) -> None:
    """Loads the service and starts the extensions; `loaded` closes what has started, also after a failure."""
    state: AppState = app.state  # type: ignore[assignment]
    try:
        secret = await asyncio.to_thread(load_secret, settings.auth.secret, settings.store.registry)
        state.keyring.unlock(Credentials(secret))
        service = await Service.open(settings, state.metrics, state.authenticator, state.preparation)
        loaded.push_async_callback(_close, service.close)
        for start in (one.start for one in extensions if one.start is not None):
            part = start(app, service)
            loaded.push_async_callback(_close, part.close)
            state.started[type(part)] = part
        # So that nothing is answered before they have read what they follow in the registry.
        await service.store.sync.catch_up()
    except Exception as failure:
        state.lifecycle.fail(failure)
        return
    state.lifecycle.start(service)
    service.watchdog.start(state.lifecycle.fail)
