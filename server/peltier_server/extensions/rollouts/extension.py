"""Guarded changes of aliases and feedback as an extension."""

import logging

from fastapi import FastAPI

from peltier_server.background import BackgroundTask
from peltier_server.extension import Extension
from peltier_server.extensions.rollouts import routes
from peltier_server.extensions.rollouts.recorder import RolloutMetrics
from peltier_server.extensions.rollouts.rollouts import Rollouts
from peltier_server.extensions.rollouts.settings import FeedbackSettings
from peltier_server.service import Service

logger = logging.getLogger(__name__)


def _start(_app: FastAPI, service: Service) -> Rollouts:
    rollouts = Rollouts(service)
    rollouts.begin()
    return rollouts


def _remind(_app: FastAPI, service: Service) -> BackgroundTask:
    task = BackgroundTask()
    task.start(_tell_running(service))
    return task


async def _tell_running(service: Service) -> None:
    try:
        running = await service.store.registry.rollouts.running()
    except Exception as error:  # nothing else would notice if this task ended
        logger.warning("whether guarded changes are in progress is unknown: %s", error)
        return
    if running:
        logger.warning(
            "guarded changes in progress: %d, such as that of %s:%s@%s; without rollouts they keep their shares, and "
            "this server decides none",
            len(running), running[0].tenant, running[0].name, running[0].alias,
        )  # fmt: skip


ROLLOUTS = Extension(
    "rollouts",
    settings=FeedbackSettings,
    routers=(routes.router, routes.changes, routes.feedback),
    metrics=RolloutMetrics,
    start=_start,
    remind=_remind,
)
