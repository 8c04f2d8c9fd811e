"""The application for `serve run peltier_server.extensions.ray.app:app` and for the configuration of `serve deploy`."""

from typing import Any

from peltier_server.extensions.ray.replica import deploy
from peltier_server.extensions.settings import load_settings


def app(settings: dict[str, object]) -> Any:
    """The application for `settings`, by their names, such as `threads=1`; others are read as `peltier serve` reads
    them. Ray chooses the address."""
    return deploy(load_settings(settings))
