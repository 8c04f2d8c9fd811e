"""The gauges for endpoint pickers as an extension."""

import logging

from fastapi import FastAPI

from peltier_server.extension import Extension
from peltier_server.extensions.picker.server import MAX_CONNECTIONS, PATH, RoutingServer
from peltier_server.extensions.picker.settings import RoutingSettings
from peltier_server.http.listener import listen, url_of
from peltier_server.settings import CoreSettings

logger = logging.getLogger(__name__)


async def _open(app: FastAPI, settings: CoreSettings) -> RoutingServer | None:
    routing = settings.group(RoutingSettings)
    if routing.routing_port is None:
        return None
    listening = listen(routing.routing_host, routing.routing_port)
    logger.info("endpoint pickers read %s%s", url_of(routing.routing_host, listening), PATH)
    server = RoutingServer(app.state.lifecycle, settings)
    server.start(listening)
    return server


def _count_files(settings: CoreSettings) -> int:
    return 0 if settings.group(RoutingSettings).routing_port is None else MAX_CONNECTIONS


PICKER = Extension("picker", settings=RoutingSettings, open=_open, count_files=_count_files)
