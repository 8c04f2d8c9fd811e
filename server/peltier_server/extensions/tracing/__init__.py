"""Export of traces by OTLP, as the standard variables of OpenTelemetry say."""
