"""Adapters in the memory of a device."""
