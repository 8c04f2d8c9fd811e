import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.skips import ALLOWED

ROOT = Path(__file__).parent.parent
# One file each; the reason in curly brackets is the file's name.
LACKING = {
    "mark": "@pytest.mark.skipif(True, reason='no {}')\ndef test_it(): ...",
    "call": "def test_it(): pytest.skip('no {}')",
    "fixture": "@pytest.fixture\ndef server(): pytest.skip('no {}')\ndef test_it(server): ...",
    "file": "pytest.importorskip('no_such_module', reason='no {}')\ndef test_it(): ...",
    "files_mark": "pytestmark = pytest.mark.skipif(True, reason='no {}')\ndef test_it(): ...",
}


def run(folder: Path, codes: dict[str, str], ci: str, *flags: str) -> str:
    """What a pytest of its own prints of these files."""
    for name, code in codes.items():
        (folder / f"test_{name}.py").write_text(f"import pytest\n{code.format(name)}\n")
    (folder / "pytest.ini").write_text("[pytest]\n")
    command = (
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "tests.support.skips",
        "-p",
        "no:cacheprovider",
        *flags,
        str(folder),
    )
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    # The others that are installed take seconds to import.
    environment |= {"CI": ci, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTEST_PLUGINS": "xdist.plugin"}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment).stdout


# In one process, and as `make test` runs the suite.
@pytest.mark.parametrize("workers", ["0", "2"])
def test_what_is_skipped_fails_in_ci(workers: str, tmp_path: Path) -> None:
    """However it is skipped, and with its reason."""
    printed = run(tmp_path, LACKING, "true", "-n", workers, "--continue-on-collection-errors")
    assert re.search(r"\b1 failed, 4 errors in ", printed), printed
    assert set(re.findall(r"skipped in CI, where nothing may be lacking: no (\w+)", printed)) == set(LACKING)


def test_what_is_skipped_elsewhere_stays_skipped(tmp_path: Path) -> None:
    """A person's machine may lack what the tests need."""
    assert "5 skipped in " in run(tmp_path, LACKING, "")


def test_opposites_and_expected_failures_may_be_skipped(tmp_path: Path) -> None:
    """A test that is for another kind of machine has one for this kind beside it."""
    reasons = [f"@pytest.mark.skipif(True, reason={reason!r})\ndef test_it(): ..." for reason in sorted(ALLOWED)]
    codes = {f"allowed_{number}": code for number, code in enumerate(reasons)}
    codes["expected"] = "@pytest.mark.xfail\ndef test_it(): assert False"
    assert f"{len(reasons)} skipped, 1 xfailed in " in run(tmp_path, codes, "true")


def test_every_run_of_pytest_is_under_the_rule() -> None:
    """Each of the Makefile loads conftest.py, or the rule by its name."""
    lines = (ROOT / "Makefile").read_text().replace("\\\n", " ").splitlines()
    calls = [line for line in lines if "-m pytest" in line]
    assert len(calls) == 4
    assert [call for call in calls if "--confcutdir" in call and "-p tests.support.skips" not in call] == []


def test_the_suite_is_under_the_rule(pytestconfig: pytest.Config) -> None:
    """conftest.py loads it, so a skip without an allowed reason fails here in CI."""
    assert pytestconfig.pluginmanager.has_plugin("tests.support.skips")
