"""Keeps adapters in the memory of a device."""
