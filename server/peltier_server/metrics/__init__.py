"""Metrics in Prometheus' format, for `/metrics`."""
