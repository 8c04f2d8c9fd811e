"""Makes the faults of `mutants.toml` one by one in a copy of the sources; the gate's tests of that code must find each.

    python -m tests.mutants [--list] [--jobs N] [NAME ...]

It first runs the tests of the chosen faults without a fault. Then it prints for each fault the first test that fails.
Its exit status is 1 if a fault is not found and its entry does not say why none can find it (`survives`).
"""

import argparse
import math
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tomllib
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from peltier_backbone.native.levels import digest, processor_levels

from hatch_build import NATIVE, compile_kernels

ROOT = Path(__file__).parent.parent
_MAX_SECONDS = 180.0
_PACKAGES = ("backbone", "adapters_store", "server", "training", "client")
_PYTEST = (
    "-m", "pytest", "--tier=gate", "--timeout=60", "-x", "-q", "-p", "no:cacheprovider", "--disable-plugin-autoload",
    "-p", "pytest_asyncio.plugin", "-p", "_hypothesis_pytestplugin", "-p", "pytest_timeout",
)  # fmt: skip
_FAILURE = re.compile(r"^(?:FAILED|ERROR) (.+?)(?: - .*)?$", re.MULTILINE)
_PASSED, _FAILED, _NO_TESTS = 0, 1, 5


@dataclass(frozen=True)
class Mutant:
    """A fault: `old`, which occurs once in `file`, becomes `new`. `survives` is the reason why no test can find it."""

    name: str
    fault: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]
    survives: str = ""

    def apply(self, text: str) -> str:
        """The text of the file with the fault. Raises ValueError if the code has changed."""
        if (count := text.count(self.old)) != 1:
            raise ValueError(f"{self.name} is stale: its old text occurs {count} times in {self.file}, not once")
        return text.replace(self.old, self.new)


def read_mutants() -> list[Mutant]:
    """The faults in their order."""
    entries = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
    return [Mutant(name, **entry | {"tests": tuple(entry["tests"])}) for name, entry in entries.items()]


class Outcome(NamedTuple):
    """The end of a run of tests: what failed first, empty if all passed; the time, and all lines."""

    failure: str
    seconds: float
    output: str


class Copy:
    """A copy of the sources, the tests and the native libraries of `root` in `folder`."""

    def __init__(self, root: Path, folder: Path) -> None:
        self._root, self._folder, self._num_faults = root, folder, 0
        command = ("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
        sources = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True).stdout.split("\0")
        for name in [*sources, *self._libraries()]:
            if (root / name).is_file():
                self._restore(name)
        paths = [folder, *(folder / package for package in _PACKAGES)]
        self._environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}

    def require_own_packages(self) -> None:
        """Raises RuntimeError if the tests would import other packages than those of the copy."""
        names = [path.parent.name for path in self._folder.glob("*/peltier_*/__init__.py")]
        code = f"import {', '.join(names)}; print({', '.join(f'{name}.__file__' for name in names)}, sep='\\n')"
        command = [sys.executable, "-c", code]
        found = subprocess.run(command, cwd="/", env=self._environment, capture_output=True, text=True, check=True)
        if others := [path for path in found.stdout.splitlines() if not Path(path).is_relative_to(self._folder)]:
            raise RuntimeError(f"the tests would import {', '.join(others)}")

    def run(self, tests: Sequence[str], max_seconds: float = _MAX_SECONDS) -> Outcome:
        """Runs the gate's tests in these files and folders. Whatever they have started ends with them."""
        begun, status = time.monotonic(), None
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen(
                [sys.executable, *_PYTEST, *tests], cwd=self._folder, env=self._environment, stdout=output,
                stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
            try:
                with suppress(subprocess.TimeoutExpired):
                    status = process.wait(None if max_seconds == math.inf else max_seconds)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
            output.seek(0)
            text = output.read()
        return Outcome(_read_failure(status, text), time.monotonic() - begun, text)

    def judge(self, mutant: Mutant) -> Outcome:
        """Runs the tests of a fault with the fault."""
        path = self._folder / mutant.file
        path.write_text(mutant.apply(path.read_text()))
        # A time that no other state of the file has: bytecode is used again for a file of the same second and size.
        self._num_faults += 1
        os.utime(path, (self._num_faults, self._num_faults))
        try:
            if path.suffix == ".c":
                self._compile()
            return self.run(mutant.tests)
        finally:
            for name in [mutant.file, *self._libraries()]:
                self._restore(name)

    def _compile(self) -> None:
        """Compiles the library of the fastest level. The others stay as they are and count as made from the changed
        files; otherwise tests would fail for that reason."""
        folder = self._folder / NATIVE
        before, after = digest(self._root / NATIVE).encode(), digest(folder).encode()
        for library in folder.glob("*.so"):
            if library.stem != processor_levels()[0].name:
                library.write_bytes(library.read_bytes().replace(before, after))
        compile_kernels(folder)

    def _libraries(self) -> list[str]:
        return [str(path.relative_to(self._root)) for path in (self._root / NATIVE).glob("*.so")]

    def _restore(self, name: str) -> None:
        (self._folder / name).parent.mkdir(parents=True, exist_ok=True)
        # With its time, as bytecode is used again.
        shutil.copy2(self._root / name, self._folder / name)


def _read_failure(status: int | None, output: str) -> str:
    """The first test that failed, or how the run ended. Raises RuntimeError if there was no test to run."""
    if status == _PASSED:
        return ""
    if status is None:
        return f"no end within {_MAX_SECONDS:g} s"
    if status == _NO_TESTS:
        raise RuntimeError(f"no tests were run: {output[-2000:]}")
    found = _FAILURE.search(output)
    if status > _FAILED:
        return f"collection of {found[1]}" if found else f"collection, with status {status}"
    return found[1] if found else f"the process ended with {status}"


@contextmanager
def create_copies(root: Path, count: int) -> Iterator[SimpleQueue[Copy]]:
    """Copies for the block, each of which one thread takes at a time."""
    copies: SimpleQueue[Copy] = SimpleQueue()
    with ExitStack() as stack:
        for _ in range(count):
            copies.put(Copy(root, Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="mutants-"))).resolve()))
        yield copies


def run(mutants: Sequence[Mutant], copies: SimpleQueue[Copy], jobs: int) -> list[Mutant]:
    """Tries the faults and prints their outcomes; returns those whose outcome is not the expected one."""

    def judge(mutant: Mutant) -> Outcome:
        copy = copies.get()
        try:
            return copy.judge(mutant)
        finally:
            copies.put(copy)

    wrong = []
    with ThreadPoolExecutor(jobs) as pool:
        for mutant, outcome in zip(mutants, pool.map(judge, mutants), strict=True):
            found = outcome.failure or f"SURVIVES{f': {mutant.survives}' if mutant.survives else ''}"
            print(f"{mutant.name:<28} {outcome.seconds:>4.0f} s  {found}", flush=True)
            if bool(outcome.failure) is bool(mutant.survives):
                wrong.append(mutant)
    return wrong


def require_tests_pass(copy: Copy, mutants: Sequence[Mutant]) -> None:
    """Exits if a test of the faults fails without a fault, or would import other packages than those of the copy."""
    copy.require_own_packages()
    tests = list(dict.fromkeys(path for mutant in mutants for path in mutant.tests))
    outcome = copy.run(tests, max_seconds=math.inf)
    if outcome.failure:
        sys.exit(f"{outcome.output}\nerror: without a fault {outcome.failure} fails")
    print(f"{'without a fault':<28} {outcome.seconds:>4.0f} s  {' '.join(tests)}", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("names", nargs="*", metavar="NAME", help="the faults to try; without one, all")
    parser.add_argument("--jobs", type=int, default=1, help="how many at a time")
    parser.add_argument("--list", action="store_true", help="only print the faults")
    given = parser.parse_args()
    mutants = read_mutants()
    if unknown := set(given.names) - {mutant.name for mutant in mutants}:
        parser.error(f"there is no {', '.join(sorted(unknown))}")
    chosen = [mutant for mutant in mutants if not given.names or mutant.name in given.names]
    for mutant in chosen:
        mutant.apply((ROOT / mutant.file).read_text())
    if given.list:
        for mutant in chosen:
            print(f"{mutant.name:<28} {mutant.fault}")
        return 0
    begun = time.monotonic()
    with create_copies(ROOT, given.jobs) as copies:
        first = copies.get()
        require_tests_pass(first, chosen)
        copies.put(first)
        wrong = run(chosen, copies, given.jobs)
    for mutant in wrong:
        print(f"error: {mutant.name} {'is found now' if mutant.survives else 'is not found'}: {mutant.fault}")
    minutes = (time.monotonic() - begun) / 60
    print(f"{len(chosen)} faults in {minutes:.0f} minutes, {len(wrong)} of them with another outcome than expected")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
