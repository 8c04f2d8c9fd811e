"""Batches of requests in files as an extension."""

from fastapi import FastAPI

from peltier_server.extension import Extension
from peltier_server.extensions.batches import routes
from peltier_server.extensions.batches.runner import BatchMetrics, BatchRunner
from peltier_server.extensions.batches.settings import BatchSettings
from peltier_server.service import Service


def _start(app: FastAPI, service: Service) -> BatchRunner:
    metrics = service.metrics.group(BatchMetrics)
    runner = BatchRunner(app, service.store, service.settings.group(BatchSettings), metrics)
    runner.start()
    return runner


BATCHES = Extension(
    "batches", routers=(routes.router,), error_shapes=(routes.BATCH_ERRORS,), metrics=BatchMetrics, start=_start
)
