"""How pytest-xdist divides the tests: which of them one worker runs, and in which order.

A worker runs whole files, because each worker that has a test of a module makes the fixtures of the module. The files
that take longest begin first, so that no worker waits for the last one at the end. Their times are those of
`tests/seconds.json`, which `--write-seconds` writes; a file that is not there begins before all others.
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

_SECONDS = Path(__file__).parent.parent / "seconds.json"
# Folders of one group: all their files share a server, libraries that are compiled for the tests, or a process that
# forks trials.
_TOGETHER = ("tests/console/", "tests/backbone/native/", "tests/training/service/", "tests/training/sweep/")
# Files whose tests share nothing that takes long to make, and take longer than most files: each test is a group.
_APART = (
    "tests/adapters_store/gpu/test_kernels.py",
    "tests/test_contributing.py",
    "tests/test_docs.py",
    "tests/test_examples.py",
    "tests/training/sweep/test_command.py",
)


def group(nodeid: str) -> str:
    """The tests of one group run in one worker: those of a file, but for the exceptions above."""
    path = nodeid.partition("::")[0]
    if path in _APART:
        return nodeid
    return next((place for place in _TOGETHER if path.startswith(place)), path)


class Order:
    """Sorts the tests of a worker by the measured seconds of their groups; pytest keeps the order of the names."""

    def __init__(self, tier: str) -> None:
        self._tier = tier
        self._known = json.loads(_SECONDS.read_text()) if _SECONDS.exists() else {}
        self._measured: Counter[str] = Counter()

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        """What takes longest first."""
        seconds = self._known.get(self._tier, {})
        items.sort(key=lambda item: -seconds.get(group(item.nodeid), float("inf")))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Adds up set-up, test and teardown."""
        self._measured[group(report.nodeid)] += report.duration

    def write(self) -> None:
        """Replaces the figures of this tier, in whole seconds from 1 on."""
        measured = {name: max(1, round(seconds)) for name, seconds in sorted(self._measured.items())}
        _SECONDS.write_text(json.dumps(self._known | {self._tier: measured}, indent=1, sort_keys=True) + "\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--write-seconds`, for a run of a whole tier on a calm machine."""
    parser.addoption("--write-seconds", action="store_true", help="write tests/seconds.json from this run")


def pytest_configure(config: pytest.Config) -> None:
    """Orders the tests where xdist divides them."""
    if config.getoption("numprocesses", None) or hasattr(config, "workerinput"):
        config.pluginmanager.register(Order(config.getoption("--tier") or "all"), "order of groups")


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Writes the figures, once: in the process that has the reports of all workers."""
    order = session.config.pluginmanager.get_plugin("order of groups")
    if order is not None and session.config.getoption("--write-seconds") and not hasattr(session.config, "workerinput"):
        order.write()


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
