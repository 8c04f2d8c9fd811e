"""What a server exports, from its start to its end."""

import os
from typing import Protocol

from opentelemetry.trace import Tracer

from peltier_server.metrics.metrics import Metrics
from peltier_server.settings import SettingsError
from peltier_server.telemetry.choice import TelemetryChoice


class Telemetry(Protocol):
    """Exports traces and metrics, or nothing."""

    @property
    def tracer(self) -> Tracer | None:
        """Makes the spans of requests and batches; None if no traces are exported."""

    def start(self) -> None:
        """Begins to export metrics periodically, in the running event loop."""

    async def close(self) -> None:
        """Exports what is left, and stops."""


class NoTelemetry:
    """Exports nothing."""

    tracer: Tracer | None = None

    def start(self) -> None:
        """Nothing."""

    async def close(self) -> None:
        """Nothing."""


def create_telemetry(metrics: Metrics) -> Telemetry:
    """What the environment asks for. Raises `SettingsError` if it needs the extra `otel` and it is not installed, or
    asks for something that there is not."""
    choice = TelemetryChoice.read(os.environ)
    if not any(choice):
        return NoTelemetry()
    try:
        # An optional dependency, which takes a while to import.
        from peltier_server.telemetry.otlp import Otlp
    except ModuleNotFoundError as error:
        raise SettingsError(f'export by OTLP needs {error.name}: pip install "peltier[otel]"') from None
    try:
        return Otlp(choice, metrics)
    except ValueError as error:
        # Of the SDK, for a variable that only it reads.
        raise SettingsError(f"a variable of OpenTelemetry cannot be used: {error}") from None
