"""The table of faults that `tests/mutants.py` makes, and the program on a small tree."""

import subprocess
from pathlib import Path

import pytest

from tests.mutants import ROOT, Copy, Mutant, read_mutants

FILES = {
    "conftest.py": "def pytest_addoption(parser):\n    parser.addoption('--tier')\n",
    "sums.py": "def add(a, b):\n    return a + b\n",
    "test_sums.py": "from sums import add\n\n\ndef test_a_sum():\n    assert add(2, 2) == 4\n",
}


def test_every_fault_has_its_place() -> None:
    """The old text of each fault occurs once in its file, the new one is another, and its tests exist."""
    for mutant in read_mutants():
        text = (ROOT / mutant.file).read_text()
        assert mutant.apply(text) != text
        assert [test for test in mutant.tests if not (ROOT / test.partition("::")[0]).exists()] == [], mutant.name


def test_a_stale_fault_is_told() -> None:
    """A fault whose code has changed names the file."""
    stale = Mutant("product", "a wrong product", "sums.py", "a * b", "a - b", ())
    with pytest.raises(ValueError, match=r"^product is stale: its old text occurs 0 times in sums\.py, not once$"):
        stale.apply(FILES["sums.py"])


# Two processes.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("new", "failure"),
    [("a - b", "test_sums.py::test_a_sum"), ("a +", "collection of test_sums.py"), ("a * b", "")],
)
def test_a_fault_is_found_or_survives(new: str, failure: str, tmp_path: Path) -> None:
    """The first test that fails is named, or the file that cannot be collected, and none if no test notices the fault.
    The copy is whole again then."""
    root, folder = tmp_path / "root", tmp_path / "copy"
    root.mkdir()
    for name, text in FILES.items():
        (root / name).write_text(text)
    begin = ("git", "init", "--quiet")
    subprocess.run(begin, cwd=root, check=True)
    copy = Copy(root, folder)
    assert copy.judge(Mutant("sum", "a wrong sum", "sums.py", "a + b", new, ("test_sums.py",))).failure == failure
    assert copy.run(["test_sums.py"]).failure == ""
    assert {name: (folder / name).read_text() for name in FILES} == FILES
