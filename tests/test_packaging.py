import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace
from typing import Any
from zipfile import ZipFile

import pytest
from peltier_backbone.native.levels import COMPILER, machine_levels

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


def unpack(wheel: Path, folder: Path) -> Path:
    ZipFile(wheel).extractall(folder)  # noqa: S202 - the wheel is ours
    return folder


def kernels_of(folder: Path) -> str:
    """What serves adapters on the CPU from the packages in `folder`."""
    code = """
import torch
import peltier_adapters
from peltier_adapters.ops.backend import AdapterGroup
from peltier_adapters.ops.choice import choose_backend
from peltier_adapters.ops.op import FusedMatmul, MatmulStep, Program
backend = choose_backend(torch.device("cpu"), torch.float32)
program = Program([FusedMatmul("head", 0, (MatmulStep(torch.ones(4, 5)),))], 1)
with torch.inference_mode():
    y = backend.group([AdapterGroup(2, program)], (2, 1)).act("head", 0, torch.zeros(3, 5), torch.ones(3, 4))
assert torch.equal(y, torch.full((3, 5), 4.0))
assert peltier_adapters.__file__.startswith(FOLDER)
print(backend.name)
"""
    command = (sys.executable, "-c", f"FOLDER = {str(folder)!r}{code}")
    found = subprocess.run(
        command, cwd=folder, env=os.environ | {"PYTHONPATH": str(folder)}, capture_output=True, text=True
    )
    assert found.returncode == 0, found.stderr
    return found.stdout.strip()


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """That of this repository, with the kernels that the installation has built."""
    folder = tmp_path_factory.mktemp("wheel")
    built = run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT, cwd=folder)
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = folder.iterdir()
    return path


@pytest.fixture(scope="module")
def environment(wheel: Path) -> Path:
    """The wheel installed without extras into an environment of its own."""
    folder = wheel.parent / "venv"
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    installed = run(
        sys.executable, "-m", "pip", "--python", python, "install", "--quiet", "--no-compile", wheel, cwd=wheel.parent
    )
    assert installed.returncode == 0, installed.stderr
    return folder


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
    command = (sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", tmp_path, ROOT)
    built = run(*command, cwd=tmp_path)
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = tmp_path.iterdir()
    with tarfile.open(path) as archive:
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


@pytest.mark.slow
def test_a_wheel_serves_by_the_kernels_that_it_carries(wheel: Path, tmp_path: Path) -> None:
    """It is for every Linux of this machine since 2014, whichever compiler built it."""
    assert wheel.name.endswith(f"-py3-none-manylinux_2_17_{platform.machine()}.whl")
    folder = unpack(wheel, tmp_path)
    assert kernels_of(folder).startswith("native-")
    for library in (folder / "peltier_backbone/native").glob("*.so"):
        needed = re.findall(rb"GLIBC_(\d+)\.(\d+)", library.read_bytes())
        assert max((int(major), int(minor)) for major, minor in needed) <= (2, 17), library.name


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


def test_a_library_is_compiled_once(hook: dict[str, Any], tmp_path: Path) -> None:
    """Until a source or a flag changes; the digest tells."""
    for name in ("levels.py", "kernels.h"):
        shutil.copy(ROOT / "backbone/peltier_backbone/native" / name, tmp_path)
    (tmp_path / "kernels.c").write_text("no C")
    stamp = run_path(str(tmp_path / "levels.py"))["digest"](tmp_path)
    for level in machine_levels():
        (tmp_path / f"{level.name}.so").write_text(stamp)
    assert [path.stem for path in hook["compile_kernels"](tmp_path)] == [level.name for level in machine_levels()]
    (tmp_path / "kernels.h").write_text("")
    with pytest.raises(RuntimeError, match="cannot be compiled"):
        hook["compile_kernels"](tmp_path)


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("os.name", "nt", "the native kernels are not written for Windows"),
        ("platform.libc_ver", lambda: ("", ""), "the native kernels need glibc"),
    ],
)
def test_a_system_without_a_target_is_told(
    hook: dict[str, Any], name: str, value: object, reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
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
