"""Directories of PEFT and AdapterHub, as the importers' tests write them."""

from tests.adapters_store.importers.conftest import save_adapterhub, save_peft

__all__ = ["save_adapterhub", "save_peft"]
