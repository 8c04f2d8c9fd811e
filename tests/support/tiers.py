"""The tiers of the suite: the gate (`make test`), what a changed path can break (`make test-changed`), and everything.

The gate leaves out tests with one of the marks below, and never imports the files that `tests/causes.py` keeps for the
other tiers. Without `--tier` nothing is left out, so `pytest FILE` runs the whole file, with the gate's examples.
"""

from pathlib import Path

import pytest
from hypothesis import settings

from tests.causes import CAUSES, ONLY_IN_ALL

_LEFT_OUT = ("slow", "alone", "postgres")
_ROOT = Path(__file__).parent.parent.parent
_tier = "all"

# A busy machine is no reason to fail. The gate draws the same examples in each run, because a new draw must not fail a
# change that has nothing to do with it. The run of everything draws others, by the seed that its header shows. Profiles
# inherit from the one that Hypothesis loads in CI, so all settings that differ there are given.
settings.register_profile("gate", deadline=None, max_examples=30, derandomize=True, database=None)
settings.register_profile("all", deadline=None, max_examples=150, derandomize=False, database=None, print_blob=True)


def is_gate() -> bool:
    """Whether this process runs the gate; known before the first test file is imported."""
    return _tier == "gate"


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--tier=gate` as in `make test`."""
    parser.addoption("--tier", choices=("gate", "all"), help="the tests of `make test`, or all with more examples")


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Remembers the tier for what is parametrised while test files are imported."""
    global _tier
    _tier = config.getoption("--tier") or "all"
    settings.load_profile(config.getoption("--tier") or "gate")


def pytest_report_header(config: pytest.Config) -> str:
    """The tier, and how to draw the same examples again."""
    seed = config.getoption("--hypothesis-seed", None)
    return f"tier: {_tier}" + (f", --hypothesis-seed={seed}" if seed else "")


@pytest.hookimpl
def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leaves out files of the other tiers before they are imported."""
    left_out = {*ONLY_IN_ALL, *(path for cause in CAUSES for path in cause.tests)} if is_gate() else set()
    inside = collection_path.is_relative_to(_ROOT)
    return True if inside and collection_path.relative_to(_ROOT).as_posix() in left_out else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leaves out tests of the other tiers."""
    if not is_gate():
        return
    left_out = {item for item in items if any(item.get_closest_marker(mark) for mark in _LEFT_OUT)}
    items[:] = [item for item in items if item not in left_out]
    config.hook.pytest_deselected(items=list(left_out))
