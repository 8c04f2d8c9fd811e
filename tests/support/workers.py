"""Tests that one worker of pytest-xdist runs, because they share what takes long to make."""

from typing import Any

import pytest

# A folder or a file: an image, a wheel, browsers, a cluster, the libraries of others, kernels for another machine.
_TOGETHER = (
    "tests/console/",
    "tests/adapters_store/importers/test_parity.py",
    "tests/backbone/native/test_aarch64.py",
    "tests/backbone/native/test_emulated_models.py",
    "tests/test_image.py",
    "tests/test_packaging.py",
    "tests/training/sweep/test_ray_runner.py",
)


def group(nodeid: str) -> str:
    """The tests of one group run in one worker. Most tests are a group of their own."""
    return next((place for place in _TOGETHER if nodeid.startswith(place)), nodeid)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The scheduler that divides tests by `group`. The mark `xdist_group` has no effect with pytest 9.2, whose items
    ignore the ids that pytest-xdist 3.8 gives them."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group(nodeid)

    return Groups(config, log)
