"""Trainings: files of examples, events, the adapters that workers leave, and a worker beside the server."""
