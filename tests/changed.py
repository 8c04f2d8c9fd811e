"""Runs the tests that only a changed path can break, and says which and why. See `make test-changed`.

    python -m tests.changed [--base COMMIT | --all] [--programs] [flags of pytest]

The base is COMMIT; without it the merge base with the upstream branch, unless that is HEAD itself; then the newest
commit that is at least four hours old. What is not committed counts as changed.
"""

import argparse
import subprocess
import sys
from collections.abc import Sequence

from tests.causes import CAUSES, Cause

# Whole products; property tests draw what the gate draws, so that a new draw fails no change.
_PYTEST = (sys.executable, "-m", "pytest")


def choose_base(named: str) -> tuple[str, str]:
    """The commit to compare with, and why this one."""
    if named:
        return _git("rev-parse", "--verify", f"{named}^{{commit}}"), "BASE"
    head = _git("rev-parse", "HEAD")
    shared = _git("merge-base", "HEAD", "@{upstream}", may_fail=True)
    if shared and shared != head:
        return shared, "the merge base with the upstream branch"
    old = _git("rev-list", "-1", "--before=4 hours ago", "HEAD")
    if old:
        return old, "the newest commit of four hours ago or earlier"
    return _git("hash-object", "-t", "tree", "/dev/null"), "no commit is four hours old, so everything is new"


def changed(base: str) -> list[str]:
    """Paths that differ between the base and the working tree."""
    new = _git("ls-files", "--others", "--exclude-standard")
    return sorted({*_git("diff", "--name-only", "--no-renames", base).splitlines(), *new.splitlines()})


def choose(paths: Sequence[str]) -> dict[Cause, list[str]]:
    """The causes that some of the paths match, and these paths."""
    found = {cause: [path for path in paths if cause.matches(path)] for cause in CAUSES}
    return {cause: reasons for cause, reasons in found.items() if reasons}


def commands(causes: Sequence[Cause], flags: Sequence[str]) -> list[list[str]]:
    """One run of pytest for all whole files, one for each mark, then the targets of make."""
    whole = dict.fromkeys(path for cause in causes for path in cause.tests + (() if cause.mark else cause.also))
    workers = ("-n", "3", "--dist", "loadscope")
    runs = [[*_PYTEST, *workers, "-m", "not alone", *flags, *whole]] if whole else []
    runs += [[*_PYTEST, *workers, "-m", cause.mark, *flags, *cause.also] for cause in causes if cause.mark]
    targets = dict.fromkeys(target for cause in causes for target in cause.targets)
    return runs + [["make", target] for target in targets]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.changed")
    parser.add_argument("--base", default="")
    parser.add_argument("--all", action="store_true", help="choose everything, whatever has changed")
    parser.add_argument("--programs", action="store_true", help="only print the packages of Debian that the tests need")
    given, flags = parser.parse_known_args()
    base, why = ("nothing", "as --all asks") if given.all else choose_base(given.base)
    chosen = {cause: ["--all"] for cause in CAUSES} if given.all else choose(changed(base))
    if given.programs:
        print(*sorted({program for cause in chosen for program in cause.programs}))
        return 0
    print(f"test-changed: compared with {base[:12]}, {why}")
    for cause in CAUSES:
        print(f"  {cause.name}: {_in_short(chosen[cause]) if cause in chosen else 'no change'}")
    if not chosen:
        print("NOTHING IS TESTED: no path of tests/causes.py has changed; name another base with BASE=")
    failed = []
    for command in commands(list(chosen), flags):
        print("$", *command, flush=True)
        if subprocess.run(command).returncode:
            failed.append(" ".join(command))
    print(*(f"failed: {command}" for command in failed), sep="\n", end="")
    return 1 if failed else 0


def _in_short(paths: Sequence[str]) -> str:
    more = f" and {len(paths) - 3} more" if len(paths) > 3 else ""
    return f"because of {', '.join(paths[:3])}{more}"


def _git(*arguments: str, may_fail: bool = False) -> str:
    command = ("git", *arguments)
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode and not may_fail:
        sys.exit(f"error: git {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout.strip() if done.returncode == 0 else ""


if __name__ == "__main__":
    sys.exit(main())
