"""A directory of PEFT, as the importers' tests write it."""

from tests.adapters_store.importers.conftest import save_peft

__all__ = ["save_peft"]
