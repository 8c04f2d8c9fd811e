"""Whether the standard variables of OpenTelemetry ask for traces. Reads nothing else and imports no SDK."""

from collections.abc import Mapping

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
