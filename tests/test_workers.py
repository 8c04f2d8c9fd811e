"""Which tests one worker runs."""

import re
import subprocess
import sys
from pathlib import Path

from tests.support import workers
from tests.support.workers import group

ROOT = Path(__file__).parent.parent


def test_places_that_are_named_exist() -> None:
    """Who moves one of these files changes the list."""
    assert [place for place in workers._TOGETHER if not (ROOT / place).exists()] == []


def test_a_folder_is_one_group_and_other_tests_are_alone() -> None:
    """The path at the start of an id decides."""
    assert group("tests/console/test_live.py::test_a[1]") == group("tests/console/test_frame.py::test_b")
    assert group("tests/test_docs.py::test_a") != group("tests/test_docs.py::test_b")


def test_one_worker_runs_a_group(tmp_path: Path) -> None:
    """With the installed versions of pytest and pytest-xdist, on which the scheduler depends."""
    folder = tmp_path / "tests" / "console"
    folder.mkdir(parents=True)
    for name in "ab":
        (folder / f"test_{name}.py").write_text(
            "import os, pytest\n@pytest.mark.parametrize('number', range(20))\n"
            "def test_it(number): print('worker', os.environ['PYTEST_XDIST_WORKER'])\n"
        )
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    plugin = ("-p", "tests.support.workers", "-p", "no:cacheprovider")
    command = (sys.executable, "-m", "pytest", *plugin, "-n", "2", "-rP")
    done = subprocess.run([*command, str(tmp_path)], cwd=ROOT, capture_output=True, text=True)
    assert "40 passed" in done.stdout, done.stdout
    assert len(set(re.findall(r"worker (gw\d)", done.stdout))) == 1
