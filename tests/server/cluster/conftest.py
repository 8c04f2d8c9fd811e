"""Imports Ray Serve once, because its modules use what pydantic has deprecated."""

import warnings
from contextlib import suppress

with warnings.catch_warnings(), suppress(ModuleNotFoundError):
    warnings.simplefilter("ignore")
    import ray.serve.experimental.consistent_hash_router  # noqa: F401
