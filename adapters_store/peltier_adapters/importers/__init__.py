"""Converts adapters of other libraries to artifacts; refuses those that cannot be served exactly."""
