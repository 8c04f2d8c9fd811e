"""How pytest-xdist divides the tests: which of them one worker runs, and in which order.

A worker runs whole files, because each worker that has a test of a module makes the fixtures of the module. The files
that take longest begin first, so that no worker waits for the last one at the end.
"""

from typing import Any

import pytest

# Folders of one group: all their files share a server, libraries that are compiled for the tests, or a process that
# forks trials.
_TOGETHER = ("tests/console/", "tests/backbone/native/", "tests/training/service/", "tests/training/sweep/")
# Files whose tests share nothing that takes long to make, and take longer than most files: each test is a group.
_APART = (
    "tests/adapters_store/ops/test_kernels.py",
    "tests/test_contributing.py",
    "tests/test_docs.py",
    "tests/test_examples.py",
    "tests/training/sweep/test_command.py",
)
# The groups that take longest, in either suite. The others follow in the order of their names.
_FIRST = (
    "tests/test_image.py",
    "tests/adapters_store/ops/test_kernels.py",
    "tests/console/",
    "tests/test_docs.py",
    "tests/test_examples.py",
    "tests/adapters_store/test_contract.py",
    "tests/adapters_store/golden/",
    "tests/backbone/test_published.py",
    "tests/training/sweep/test_command.py",
    "tests/adapters_store/importers/test_parity.py",
    "tests/crash/",
    "tests/test_processes.py",
    "tests/test_monitoring.py",
    "tests/test_rolling_restart.py",
    "tests/server/cluster/",
    "tests/training/",
    "tests/backbone/native/",
    "tests/test_",
    "tests/server/test_",
    "tests/server/runner/",
    "tests/adapters_store/test_",
)


def group(nodeid: str) -> str:
    """The tests of one group run in one worker: those of a file, but for the exceptions above."""
    path = nodeid.partition("::")[0]
    if path in _APART:
        return nodeid
    return next((place for place in _TOGETHER if path.startswith(place)), path)


def rank(nodeid: str) -> int:
    """Tests with a lower rank begin earlier."""
    return next((number for number, place in enumerate(_FIRST) if nodeid.startswith(place)), len(_FIRST))


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Sorts the tests of a worker; pytest by itself keeps the order of the names."""
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: rank(item.nodeid))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """The scheduler that divides tests by `group`. The mark `xdist_group` has no effect with pytest 9.2, whose items
    ignore the ids that pytest-xdist 3.8 gives them."""
    from xdist.scheduler import LoadScopeScheduling

    class Groups(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return group(nodeid)

    config.option.loadscopereorder = False  # else the groups with the most tests begin first
    return Groups(config, log)
