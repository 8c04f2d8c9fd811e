"""The traces that a server exports, as an extension."""

import os

from peltier_server.extension import Extension, Tracing
from peltier_server.extensions.tracing.choice import asks_for_traces
from peltier_server.settings import SettingsError


def create_tracing() -> Tracing | None:
    """The export that the environment asks for. Raises `SettingsError` if it needs the extra `otel` and it is not
    installed, or for an exporter or a protocol that does not exist."""
    if not asks_for_traces(os.environ):
        return None
    try:
        # An optional dependency, which takes a while to import.
        from peltier_server.extensions.tracing.otlp import Otlp
    except ModuleNotFoundError as error:
        raise SettingsError(f'export by OTLP needs {error.name}: pip install "peltier[otel]"') from None
    try:
        return Otlp()
    except ValueError as error:
        # Of the SDK, for a variable that only it reads.
        raise SettingsError(f"a variable of OpenTelemetry cannot be used: {error}") from None


TRACING = Extension("tracing", create_tracing=create_tracing)
