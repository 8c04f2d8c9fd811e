"""What the standard variables of OpenTelemetry ask this server to export. Reads nothing else and imports no SDK."""

from collections.abc import Mapping
from typing import NamedTuple, Self

from peltier_server.settings import SettingsError

_PROTOCOL = "http/protobuf"


class TelemetryChoice(NamedTuple):
    """Whether to export traces and metrics. A signal is exported by OTLP if `OTEL_<SIGNAL>_EXPORTER` is `otlp`, or
    if that is not set and an endpoint is; with `none`, or with `OTEL_SDK_DISABLED=true`, it is not."""

    traces: bool
    metrics: bool

    @classmethod
    def read(cls, environment: Mapping[str, str]) -> Self:
        """The choice of `environment`. Raises `SettingsError` for an exporter or a protocol that there is not."""
        if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
            return cls(traces=False, metrics=False)
        return cls(_is_asked(environment, "TRACES"), _is_asked(environment, "METRICS"))


def _is_asked(environment: Mapping[str, str], signal: str) -> bool:
    name = f"OTEL_{signal}_EXPORTER"
    exporter = environment.get(name, "").strip().lower()
    endpoints = (f"OTEL_EXPORTER_OTLP_{signal}_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
    if exporter not in ("", "otlp", "none"):
        raise SettingsError(f"environment variable {name} is {exporter!r}: this server exports by otlp, or none")
    if exporter == "none" or not (exporter or any(environment.get(endpoint) for endpoint in endpoints)):
        return False
    for protocol in (f"OTEL_EXPORTER_OTLP_{signal}_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL"):
        given = environment.get(protocol, "").strip().lower()
        if given not in ("", _PROTOCOL):
            raise SettingsError(f"environment variable {protocol} is {given!r}: this server speaks {_PROTOCOL} only")
    return True
