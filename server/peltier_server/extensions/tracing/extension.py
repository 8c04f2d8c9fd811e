"""The traces that a server exports, as an extension."""

import os
from collections.abc import Mapping

from peltier_server.extension import Extension, Tracing
from peltier_server.settings import SettingsError

_EXPORTER = "OTEL_TRACES_EXPORTER"
_PROTOCOL = "http/protobuf"


def asks_for_traces(environment: Mapping[str, str]) -> bool:
    """Whether to export traces: if `OTEL_TRACES_EXPORTER` is `otlp`, or if that is not set and an endpoint is. With
    `none`, or with `OTEL_SDK_DISABLED=true`, they are not exported.

    Raises `SettingsError` for an exporter or a protocol that does not exist."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporter = environment.get(_EXPORTER, "").strip().lower()
    if exporter not in ("", "otlp", "none"):
        raise SettingsError(f"environment variable {_EXPORTER} is {exporter!r}: this server exports by otlp, or none")
    endpoints = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    if exporter == "none" or not (exporter or any(environment.get(endpoint) for endpoint in endpoints)):
        return False
    for protocol in ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        given = environment.get(protocol, "").strip().lower()
        if given not in ("", _PROTOCOL):
            raise SettingsError(f"environment variable {protocol} is {given!r}: this server speaks {_PROTOCOL} only")
    return True


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
