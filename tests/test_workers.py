"""Which tests one worker runs."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support import workers
from tests.support.workers import group, rank

ROOT = Path(__file__).parent.parent


def test_places_that_are_named_exist() -> None:
    """Who moves one of these files changes the lists."""
    places = {*workers._TOGETHER, *workers._APART, *workers._FIRST}
    assert [place for place in sorted(places) if not [*ROOT.glob(f"{place.removesuffix('/')}*")]] == []


def test_a_group_is_a_file_a_folder_or_one_test() -> None:
    """The path at the start of an id decides."""
    assert group("tests/console/test_live.py::test_a[1]") == group("tests/console/test_frame.py::test_b")
    assert group("tests/test_site.py::test_a[b::c]") == group("tests/test_site.py::test_b")
    assert group("tests/test_site.py::test_a") != group("tests/test_skips.py::test_a")
    assert group("tests/test_docs.py::test_a") != group("tests/test_docs.py::test_b")


def test_what_takes_long_begins_first() -> None:
    """The other files follow in the order of their names."""
    ids = ("tests/client/test_cli.py::test_a", "tests/server/test_path.py::test_b", "tests/test_image.py::test_c")
    assert sorted(ids, key=rank) == [ids[2], ids[1], ids[0]]
    assert rank("tests/client/test_cli.py::test_a") == rank("tests/training_data.py::test_b")


@pytest.mark.slow
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
