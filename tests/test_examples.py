"""The worked examples in their short form, and the pages about them."""

import faulthandler
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.forked_commands import forked_commands

ROOT = Path(__file__).parent.parent
# The examples run `peltier` by `sys.executable`. Its processes are forked, as in tests/test_docs.py.
RUN = """
import runpy, sys
sys.executable, sys.argv = {program!r}, ["{name}.py", "--short"]
sys.path.insert(0, "examples")
runpy.run_path("examples/{name}.py", run_name="__main__")
"""
EXAMPLES = sorted(path.stem for path in (ROOT / "examples").glob("*.py"))


def headings(output: str) -> list[str]:
    """The lines that begin a part of the output, without their numbers."""
    return [re.sub(r"\d[\d,]*", "#", line) for line in output.splitlines() if line.startswith("== ")]


def shown(name: str) -> str:
    """The output that an example's page shows."""
    page = (ROOT / "docs" / "examples" / f"{name}.md").read_text()
    return "\n".join(re.findall(r"^```\n(.*?)^```", page, flags=re.DOTALL | re.MULTILINE))


def test_every_example_has_a_page() -> None:
    """With the headings of its script, and no other page is there."""
    assert [path.stem for path in sorted((ROOT / "docs" / "examples").glob("*.md"))] == EXAMPLES
    assert all(len(headings(shown(name))) >= 4 for name in EXAMPLES)


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_runs_in_its_short_form(name: str) -> None:
    """From training to the last answer, with the parts that its page shows."""
    # A worker beside a server has the lowest priority, so beside other tests a training may take minutes.
    faulthandler.cancel_dump_traceback_later()
    with forked_commands() as program:
        command = [sys.executable, "-c", RUN.format(name=name, program=str(program))]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=1500)
    assert done.returncode == 0, done.stderr[-2000:]
    assert headings(done.stdout) == headings(shown(name))
    assert "error" not in done.stdout
