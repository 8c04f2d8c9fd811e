"""The routes: short functions that turn HTTP requests into calls of the service."""
