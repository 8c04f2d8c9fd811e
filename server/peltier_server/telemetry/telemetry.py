"""The traces that a server exports, from its start to its end."""

import os
from typing import Protocol

from opentelemetry.trace import Tracer

from peltier_server.settings import SettingsError
from peltier_server.telemetry.choice import asks_for_traces


class Telemetry(Protocol):
    """Exports traces, or nothing."""

    @property
    def tracer(self) -> Tracer | None:
        """Makes the spans of requests and batches; None if no traces are exported."""

    async def close(self) -> None:
        """Export the remaining spans, and stop."""


class NoTelemetry:
    """Exports nothing."""

    tracer: Tracer | None = None

    async def close(self) -> None:
        """Do nothing."""


def create_telemetry() -> Telemetry:
    """The export that the environment asks for. Raises `SettingsError` if it needs the extra `otel` and it is not
    installed, or for an exporter or a protocol that does not exist."""
    if not asks_for_traces(os.environ):
        return NoTelemetry()
    try:
        # An optional dependency, which takes a while to import.
        from peltier_server.telemetry.otlp import Otlp
    except ModuleNotFoundError as error:
        raise SettingsError(f'export by OTLP needs {error.name}: pip install "peltier[otel]"') from None
    try:
        return Otlp()
    except ValueError as error:
        # Of the SDK, for a variable that only it reads.
        raise SettingsError(f"a variable of OpenTelemetry cannot be used: {error}") from None
