"""Export of traces and metrics by OTLP, as the standard variables of OpenTelemetry say."""
