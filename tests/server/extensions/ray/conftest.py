"""Imports Ray Serve once, because its modules use what pydantic has deprecated."""

import sys
import warnings
from contextlib import suppress

import pytest
from peltier_backbone.machine.ray_cluster import set_variables

from tests.support.ray_cluster import LEFT_OUT

set_variables()  # before Ray is imported, also by tests of other folders
with warnings.catch_warnings(), suppress(ModuleNotFoundError), pytest.MonkeyPatch.context() as patch:
    warnings.simplefilter("ignore")
    for name in LEFT_OUT:
        patch.setitem(sys.modules, name, None)  # importing it fails
    import ray.serve.experimental.consistent_hash_router  # noqa: F401
