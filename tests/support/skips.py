"""In CI a skipped test fails: `.ci/run` must install the missing program.

Loaded by conftest.py; alone with `-p tests.support.skips`.
"""

import os
from collections.abc import Generator

import pytest

# By their reasons: tests that no installation makes run beside their opposites, or that depend on the processor.
ALLOWED = frozenset(
    {
        "oneDNN does not multiply bfloat16 on this processor",
        "this machine has a CUDA device",
        "this processor does not run this library",
    }
)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test, or a fixture of it, that skips."""
    report = yield
    if not hasattr(report, "wasxfail"):  # an expected failure is reported as skipped too
        _judge(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """A whole file that skips."""
    report = yield
    _judge(report)
    return report


def _judge(report: pytest.TestReport | pytest.CollectReport) -> None:
    if not report.skipped or os.environ.get("CI") != "true":
        return
    assert isinstance(report.longrepr, tuple)
    reason = report.longrepr[2].removeprefix("Skipped: ")
    if reason not in ALLOWED:
        report.outcome = "failed"
        report.longrepr = f"skipped in CI, where nothing may be lacking: {reason}"
