import subprocess
import sys
import venv
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = {"peltier_adapters", "peltier_backbone", "peltier_client", "peltier_server", "peltier_training"}

# One worker builds and installs for all the tests of this file.
pytestmark = pytest.mark.xdist_group("packaging")


def run(*command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, cwd=cwd, capture_output=True, text=True)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
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
    installed = run(sys.executable, "-m", "pip", "--python", python, "install", "--quiet", wheel, cwd=wheel.parent)
    assert installed.returncode == 0, installed.stderr
    return folder


def test_wheel_holds_exactly_the_five_packages(wheel: Path) -> None:
    """Nothing but the packages and the metadata is at the top of the wheel."""
    tops = {name.split("/")[0] for name in ZipFile(wheel).namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == PACKAGES


def test_wheel_holds_every_file_of_the_repository(wheel: Path) -> None:
    """Modules, type markers, migrations and the licence are all in the wheel, and no left-overs are."""
    files = (path for package in PACKAGES for path in ROOT.glob(f"*/{package}/**/*") if path.is_file())
    sources = {"/".join(path.relative_to(ROOT).parts[1:]) for path in files if path.parent.name != "__pycache__"}
    names = set(ZipFile(wheel).namelist())
    assert {name for name in names if ".dist-info/" not in name} == sources
    assert {f"{package}/py.typed" for package in PACKAGES} <= names
    assert "peltier_adapters/registry/migrations/env.py" in names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


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


def test_missing_extra_is_one_sentence(environment: Path) -> None:
    """A command whose extra is missing names the extra on one line and exits with 1."""
    failed = run(environment / "bin" / "peltier", "serve", cwd=environment)
    assert failed.returncode == 1, failed.stderr
    assert failed.stdout == ""
    (sentence,) = failed.stderr.splitlines()
    assert "peltier[server]" in sentence
