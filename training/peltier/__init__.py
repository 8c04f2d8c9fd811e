"""Peltier in Python: train an adapter, use it, and publish it to a server, from one import.

    import peltier

    adapter = peltier.train(frame, task="intents")   # a DataFrame, a Dataset, rows or a file
    adapter.predict(["where is my card?"])
    adapter.publish("http://127.0.0.1:8000")

`train`, `load` and `Adapter` need the extra `training`; `Client` and `AsyncClient` need nothing more. Each is imported
when it is first used.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from peltier_client import AsyncClient, Client
    from peltier_training.notebook import Adapter, load, train

__all__ = ["Adapter", "AsyncClient", "Client", "load", "train"]

_HOMES = {
    "Adapter": "peltier_training.notebook",
    "load": "peltier_training.notebook",
    "train": "peltier_training.notebook",
    "AsyncClient": "peltier_client",
    "Client": "peltier_client",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'peltier' has no attribute {name!r}")
    try:
        return getattr(import_module(_HOMES[name]), name)
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("peltier"):
            raise
        raise ModuleNotFoundError(
            f'peltier.{name} needs {error.name}: pip install "peltier[training,minilm]"', name=error.name
        ) from error


def __dir__() -> list[str]:
    return sorted(__all__)
