"""The client for asynchronous code."""

from peltier_client.asynchronous.client import AsyncClient
from peltier_client.asynchronous.files import AsyncFiles
from peltier_client.asynchronous.text_stream import AsyncTextStream
from peltier_client.asynchronous.trainings import AsyncTrainings

__all__ = ["AsyncClient", "AsyncFiles", "AsyncTextStream", "AsyncTrainings"]
