"""Trainings as an extension: their routes, the adapters that workers leave, and a worker beside the server."""

from fastapi import FastAPI

from peltier_server.extension import Extension
from peltier_server.extensions.files.intake import FileIntake
from peltier_server.extensions.files.settings import FileSettings
from peltier_server.extensions.trainings import fine_tuning, routes
from peltier_server.extensions.trainings.event_feed import EventFeed
from peltier_server.extensions.trainings.fine_tuning_messages import FINE_TUNING_ERRORS
from peltier_server.extensions.trainings.intake import TrainingIntake
from peltier_server.extensions.trainings.publication import TrainingMetrics, TrainingPublisher
from peltier_server.extensions.trainings.settings import TrainingSettings
from peltier_server.extensions.trainings.trainings import Trainings
from peltier_server.extensions.trainings.worker_process import WorkerProcess, require_training
from peltier_server.service import Service
from peltier_server.settings import CoreSettings


def _check(settings: CoreSettings) -> None:
    if settings.group(TrainingSettings).worker:
        require_training()


def _start(app: FastAPI, service: Service) -> Trainings:
    store, preparation, can_guard = service.store, app.state.preparation, "rollouts" in app.state.extensions
    files = FileIntake(store, preparation, service.settings.group(FileSettings))
    trainings = Trainings(
        TrainingIntake(files, store, service.backbone.config, preparation, can_guard=can_guard),
        EventFeed(store.registry, lambda: store.sync.position),
        TrainingPublisher(store, service.publisher, service.metrics.group(TrainingMetrics)),
        WorkerProcess.of(service.settings),
    )
    trainings.begin()
    return trainings


TRAININGS = Extension(
    "trainings",
    settings=TrainingSettings,
    routers=(fine_tuning.router, routes.router),
    error_shapes=(FINE_TUNING_ERRORS,),
    metrics=TrainingMetrics,
    check=_check,
    start=_start,
)
