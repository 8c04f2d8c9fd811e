"""Which tests one worker runs, and in which order."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import workers
from tests.support.workers import group

ROOT = Path(__file__).parent.parent


def test_places_that_are_named_exist() -> None:
    """Who moves one of these files changes the lists."""
    places = {*workers._TOGETHER, *workers._APART}
    assert [place for place in sorted(places) if not (ROOT / place).exists()] == []


def test_a_group_is_a_file_a_folder_or_one_test() -> None:
    """The path at the start of an id decides."""
    assert group("tests/console/test_live.py::test_a[1]") == group("tests/console/test_frame.py::test_b")
    assert group("tests/test_site.py::test_a[b::c]") == group("tests/test_site.py::test_b")
    assert group("tests/test_site.py::test_a") != group("tests/test_skips.py::test_a")
    assert group("tests/test_docs.py::test_a") != group("tests/test_docs.py::test_b")


@pytest.mark.slow
def test_one_worker_runs_a_group_and_the_longest_begins_first(tmp_path: Path) -> None:
    """With the installed pytest-xdist, on whose scheduler it depends; the seconds of one run order the next one."""
    (tmp_path / "tests" / "console").mkdir(parents=True)
    for name, seconds in {"console/test_a": 0.0, "console/test_b": 0.0, "test_long": 0.2, "test_short": 0.0}.items():
        (tmp_path / "tests" / f"{name}.py").write_text(
            "import os, pytest, time\n@pytest.mark.parametrize('number', range(10))\n"
            f"def test_it(number): time.sleep({seconds}); print('ran', __name__, os.environ['PYTEST_XDIST_WORKER'])\n"
        )
    written = tmp_path / "seconds.json"
    (tmp_path / "conftest.py").write_text(
        "from pathlib import Path\nfrom tests.support import workers\n"
        f"workers._SECONDS = Path({str(written)!r})\ndef pytest_addoption(parser): parser.addoption('--tier')\n"
    )
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    plugin = ("-p", "tests.support.workers", "-p", "no:cacheprovider")
    command = (sys.executable, "-m", "pytest", *plugin, "-n", "2", "-vrP", "--write-seconds", str(tmp_path))
    for _ in range(2):
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
        assert "40 passed" in done.stdout, done.stdout + done.stderr
    assert json.loads(written.read_text())["all"]["tests/test_long.py"] >= 2
    assert len(set(re.findall(r"ran \S*test_[ab] (gw\d)", done.stdout))) == 1
    begun = [line for line in done.stdout.splitlines() if "::test_it[" in line]
    assert any("test_long.py" in line for line in begun[:2]), done.stdout  # one of the two workers begins with it
