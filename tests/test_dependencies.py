"""The locks against the ranges of pyproject.toml, and the environment against the lock."""

import ast
import platform
import re
import subprocess
import sys
import tomllib
from collections.abc import Mapping
from functools import cache
from importlib.metadata import distribution, packages_distributions
from pathlib import Path

import pytest
from packaging.markers import Marker, default_environment
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOCKS = ("constraints.txt", "floors.txt")
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
# The extras that a folder's imports may be of; what is optional is imported where it is used.
OPTIONAL = ("cuda", "grpc", "minilm", "oidc", "otel", "ray")
EXTRAS = {
    "client": (),
    "backbone": ("adapters", "convert", *OPTIONAL),
    "adapters_store": ("adapters", *OPTIONAL),
    "server": ("adapters", "server", *OPTIONAL),
    "training": ("adapters", "training", *OPTIONAL),
}
# What CI cannot install at its floor, and how far the range is known to hold.
NOT_AT_THEIR_FLOOR = {
    "torch": "CI can install the CPU build of 2.13 alone",
    "triton": "goes with torch: 3.6 is the release of torch 2.11",
}


def environment(python: str) -> dict[str, str]:
    """The values of markers on Linux with a release of Python (3.11.2), or with a late one of a series (3.11)."""
    major, minor, *micro = python.split(".")
    return {str(k): str(v) for k, v in default_environment().items()} | {
        "python_version": f"{major}.{minor}",
        "python_full_version": python if micro else f"{python}.9",
        "platform_system": "Linux",
        "sys_platform": "linux",
    }


def applies(marker: Marker | None, values: dict[str, str]) -> bool:
    return marker is None or marker.evaluate(values | {"extra": ""})


def requirements(python: str) -> list[Requirement]:
    """What the package, each extra and the build need there, without the extras that name each other."""
    project = PROJECT["project"]
    lines = [*project["dependencies"], *PROJECT["build-system"]["requires"]]
    lines += [line for extra in project["optional-dependencies"].values() for line in extra]
    found = [Requirement(line) for line in lines]
    return [one for one in found if one.name != project["name"] and applies(one.marker, environment(python))]


def pins(lock: str, python: str) -> dict[str, Version]:
    """What a lock installs there: a version for each name."""
    lines = [line for line in (ROOT / lock).read_text().splitlines() if not line.lstrip().startswith("#")]
    found = [one for one in map(Requirement, lines) if applies(one.marker, environment(python))]
    versions = {canonicalize_name(one.name): Version(str(one.specifier).removeprefix("==")) for one in found}
    assert len(versions) == len(found), "a name is pinned twice"
    return versions


def floor(requirement: Requirement) -> Version:
    """The lower end of a range."""
    (lowest,) = (Version(one.version) for one in requirement.specifier if one.operator in (">=", "=="))
    return lowest


def closure(name: str, extras: frozenset[str]) -> set[str]:
    """Every distribution that is installed for `name[extras]`."""
    found, open_ends = set[str](), [Requirement(f"{name}[{','.join(sorted(extras))}]")]
    seen = set[str]()
    while open_ends:
        wanted = open_ends.pop()
        if str(wanted) in seen:
            continue
        seen.add(str(wanted))
        found.add(canonicalize_name(wanted.name))
        for line in distribution(wanted.name).requires or ():
            needed = Requirement(line)
            values = [{"extra": extra} for extra in (*wanted.extras, "")]
            if needed.marker is None or any(needed.marker.evaluate(value) for value in values):
                open_ends.append(needed)
    return found


@cache
def owners() -> Mapping[str, list[str]]:
    """The distributions of each module that is installed."""
    return packages_distributions()


def imported(file: Path) -> set[str]:
    """The top-level names that a file imports from elsewhere, wherever in it."""
    nodes = list(ast.walk(ast.parse(file.read_text())))
    names = [alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names]
    names += [str(node.module) for node in nodes if isinstance(node, ast.ImportFrom) and node.level == 0]
    tops = {name.partition(".")[0] for name in names} - sys.stdlib_module_names
    return {name for name in tops if not name.startswith("peltier_")}


@pytest.mark.parametrize("folder", EXTRAS)
def test_what_is_imported_is_declared(folder: str) -> None:
    """By name and with a range; that another requirement brings it today is no promise."""
    project = PROJECT["project"]
    lines = [
        *project["dependencies"],
        *(one for extra in EXTRAS[folder] for one in project["optional-dependencies"][extra]),
    ]
    declared = {canonicalize_name(Requirement(line).name) for line in lines if Requirement(line).specifier}
    names = {name for file in (ROOT / folder).rglob("*.py") for name in imported(file)}
    assert names
    assert {name for name in names if not declared & {canonicalize_name(one) for one in owners()[name]}} == set()


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("lock", LOCKS)
def test_every_requirement_is_pinned_within_its_range(lock: str, python: str) -> None:
    """Of the package, of every extra and of the build; `make lock` writes what is missing."""
    pinned = pins(lock, python)
    needed = requirements(python)
    assert {canonicalize_name(one.name) for one in needed} - set(pinned) == set()
    assert [f"{one}, pinned {pinned[canonicalize_name(one.name)]}" for one in needed
            if not one.specifier.contains(pinned[canonicalize_name(one.name)])] == []  # fmt: skip


def test_the_floors_are_the_lower_ends_of_the_ranges() -> None:
    """No range begins below the version that floors.txt pins."""
    pinned = pins("floors.txt", "3.11")
    ranges = [one for one in requirements("3.11") if one.specifier]
    untried = {one.name for one in ranges if floor(one) != pinned[canonicalize_name(one.name)]}
    assert untried == set(NOT_AT_THEIR_FLOOR)


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_names_versions_alone(lock: str) -> None:
    """Each line pins one release exactly; an index, a path or a hash of one machine's builds is not in it."""
    lines = [line for line in (ROOT / lock).read_text().splitlines() if not line.startswith("#")]
    assert [line for line in lines if not re.fullmatch(r"[a-z0-9-]+==[\w.!]+( ; [^/@]+)?", line)] == []


@pytest.mark.slow
@pytest.mark.skipif(Path(sys.prefix) != ROOT / ".venv", reason="this environment was not made by make")
def test_the_environment_is_the_lock() -> None:
    """`make` installed what constraints.txt says: every package that any extra of dev brings, in that version."""
    pinned = pins("constraints.txt", platform.python_version())
    installed = closure("peltier", frozenset({"dev"})) - {"peltier"}
    versions = {name: Version(Version(distribution(name).version).public) for name in installed}
    assert {name: str(found) for name, found in versions.items() if found != pinned.get(name)} == {}


@pytest.mark.slow
def test_nothing_is_installed_around_a_lock() -> None:
    """Every pip that make and the Dockerfiles call takes its versions, and those of the build, from a lock."""
    command = ("make", "--dry-run", "--always-make", "install", "test", "lock")
    made = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    images = "".join((ROOT / folder / "Dockerfile").read_text() for folder in (".", "deploy/grafana"))
    text = made + images.replace("\\\n", " ")
    calls = [line for line in text.splitlines() if "pip install" in line]
    built = [call for call in calls if '".[' in call]
    assert len(built) == 3
    assert [call for call in calls if not re.search(r" --constraint (constraints|floors)\.txt", call)] == []
    assert [call for call in built if "--build-constraint" not in call] == []
