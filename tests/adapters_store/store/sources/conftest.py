"""Directories of PEFT and AdapterHub, as the importers' tests write them, and a server in a thread."""

from tests.adapters_store.importers.conftest import save_adapterhub, save_peft
from tests.server.conftest import listen, new_registry

__all__ = ["listen", "new_registry", "save_adapterhub", "save_peft"]
