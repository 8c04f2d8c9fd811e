import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parent.parent
CONSOLE = "server/peltier_server/console"
PACKAGES = {
    "peltier_adapters",
    "peltier_backbone",
    "peltier_client",
    "peltier_server",
    "peltier_store",
    "peltier_training",
}


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True)


def build(folder: Path, compiler: str) -> Path:
    """The wheel of this repository."""
    command = (sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", folder, ROOT)
    environment = os.environ | {"CC": compiler}
    built = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = folder.iterdir()
    return path


def unpack(wheel: Path, folder: Path) -> Path:
    ZipFile(wheel).extractall(folder)  # noqa: S202 - the wheel is ours
    return folder


def kernels_of(folder: Path) -> str:
    """What serves adapters on the CPU from the packages in `folder`."""
    code = """
import torch
import peltier_adapters
from peltier_adapters.ops.backend import AdapterGroup, choose_backend
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
    """As it is built where there is no C compiler."""
    return build(tmp_path_factory.mktemp("wheel"), "no-such-compiler")


@pytest.fixture(scope="module")
def environment(wheel: Path) -> Path:
    """The wheel installed without extras into an environment of its own."""
    folder = wheel.parent / "venv"
    venv.create(folder, symlinks=True)
    python = folder / "bin" / "python"
    installed = run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", wheel, cwd=wheel.parent)
    assert installed.returncode == 0, installed.stderr
    return folder


def test_wheel_holds_exactly_our_packages(wheel: Path) -> None:
    """Nothing but the packages and the metadata is at the top of the wheel."""
    tops = {name.split("/")[0] for name in ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == PACKAGES


def test_wheel_holds_every_file_of_the_repository(wheel: Path) -> None:
    """Modules, type markers, migrations and the licence are all in the wheel, and no left-overs are."""
    files = (path for package in PACKAGES for path in ROOT.glob(f"*/{package}/**/*") if path.is_file())
    sources = {
        "/".join(path.relative_to(ROOT).parts[1:])
        for path in files
        if path.parent.name != "__pycache__" and path.suffix != ".so"
    }
    names = set(ZipFile(wheel).namelist())
    assert {name for name in names if ".dist-info/" not in name} == sources
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


def test_a_wheel_without_a_compiler_is_pure(wheel: Path, tmp_path: Path) -> None:
    """It is for any machine, and torch computes what native kernels would."""
    assert wheel.name.endswith("-py3-none-any.whl")
    assert kernels_of(unpack(wheel, tmp_path)) == "torch"


@pytest.mark.slow  # tests/backbone/native stays, with the kernels that an install builds by the same hook
@pytest.mark.skipif(shutil.which("cc") is None, reason="this machine has no C compiler")
def test_a_wheel_with_a_compiler_carries_native_kernels(tmp_path: Path) -> None:
    """It is for machines of this kind, and serves by the kernels that it carries."""
    (tmp_path / "wheel").mkdir()
    wheel = build(tmp_path / "wheel", "cc")
    assert wheel.name.endswith(f"-py3-none-{sysconfig.get_platform().replace('-', '_').replace('.', '_')}.whl")
    assert kernels_of(unpack(wheel, tmp_path / "packages")).startswith("native-")


@pytest.mark.slow  # `make check-client` runs the client's tests in such an environment
def test_client_works_without_torch(environment: Path) -> None:
    """The base install imports the client and has no torch to import."""
    code = "import peltier_client, importlib.util as u; peltier_client.Client; assert u.find_spec('torch') is None"
    imported = run(environment / "bin" / "python", "-c", code, cwd=environment)
    assert imported.returncode == 0, imported.stderr


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
