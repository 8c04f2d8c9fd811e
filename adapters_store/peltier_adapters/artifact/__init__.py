"""Artifacts: the file format of adapters."""
