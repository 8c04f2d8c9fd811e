"""Podman with a store of its own: it builds the project's image from a local base and runs it.

The base is a Debian that mmdebstrap makes, in place of the one that the Dockerfile names, so no registry is asked.
pip finds packages in the build where it finds them on this machine.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest

ROOT = Path(__file__).parents[2]
NATIVE = "backbone/peltier_backbone/native"
_PROGRAMS = ("podman", "runc", "mmdebstrap")
_BASE, _IMAGE = "localhost/debian-python:test", "localhost/peltier:test"
_DASHBOARDS = "localhost/peltier-dashboards:test"
# Python as Debian 12 has it: the version of the Dockerfile's base.
_DEBIAN = ("--variant=minbase", "--include=python3,python3-venv,ca-certificates", "bookworm")


class Podman:
    """Images and containers below one directory; `run` is a directory whose path has at most 50 characters."""

    def __init__(self, directory: Path, run: str) -> None:
        self._directory = directory
        places = ("--root", str(directory / "storage"), "--runroot", run)
        self._command = ("podman", *places, "--cgroup-manager", "cgroupfs", "--runtime", "runc")

    def __call__(self, *arguments: str) -> str:
        """What the command prints on stdout; fails with all that it prints."""
        done = self.run(*arguments)
        assert done.returncode == 0, f"podman {' '.join(arguments)}: {done.stdout[-4000:]}\n{done.stderr[-4000:]}"
        return done.stdout.strip()

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """What a command did that may fail."""
        return subprocess.run([*self._command, *arguments], cwd=ROOT, capture_output=True, text=True)

    def build(self) -> str:
        """The name of the image that the Dockerfile makes on a local base."""
        self.import_base()
        return self._build(_IMAGE, "--build-arg", f"TORCH_INDEX={_pip_index()}", *_library_volumes())

    def build_dashboards(self) -> str:
        """The name of the first stage of Grafana's image, which writes the dashboards. The base has been imported."""
        return self._build(_DASHBOARDS, "--file", "deploy/grafana/Dockerfile", "--target", "build")

    def _build(self, name: str, *flags: str) -> str:
        self(
            *("build", "--isolation", "chroot", "--pull=never", "--layers=false", "--format", "docker"),
            *("--build-arg", f"BASE_IMAGE={_BASE}", *flags),
            *_pip_volumes(self._directory / "pip.conf"),
            *("--tag", name, "."),
        )
        return name

    def start(self, name: str, *flags: str, image: str = _IMAGE, arguments: tuple[str, ...] = ()) -> None:
        """A container in the background, on this machine's network, hardened as docker-compose.yml has it."""
        # Where a container may not raise its limits above those of this process, it asks for lower ones.
        hardened = ("--read-only", "--tmpfs=/tmp", "--cap-drop", "ALL", "--security-opt", "no-new-privileges")
        limits = ("--ulimit", "nofile=1024:1024", "--ulimit", "nproc=1000:1000")
        self("run", "--detach", "--name", name, "--network", "host", *hardened, *limits, *flags, image, *arguments)

    def import_base(self) -> None:
        """Makes an image of a small Debian."""
        archive = self._directory / "base.tar"
        made = subprocess.run([_path("mmdebstrap"), *_DEBIAN, archive], capture_output=True, text=True)
        assert made.returncode == 0, made.stderr[-4000:]
        self("import", str(archive), _BASE)
        archive.unlink()


@contextmanager
def podman_in(directory: Path) -> Iterator[Podman]:
    """Podman, or a skipped test where the machine has none; nothing of it is left running or on the disk."""
    missing = [program for program in _PROGRAMS if shutil.which(program) is None]
    if missing:
        pytest.skip(f"{', '.join(missing)} is not installed")
    if os.geteuid() != 0:
        pytest.skip("only root can build an image from a base that mmdebstrap makes")
    with tempfile.TemporaryDirectory(prefix="podman-") as run:
        podman = Podman(directory, run)
        try:
            yield podman
        finally:
            podman("rm", "--all", "--force", "--time", "0")
            podman("rmi", "--all", "--force")


def _path(program: str) -> str:
    return shutil.which(program) or program


def _library_volumes() -> Iterator[str]:
    """Mounts the libraries of the installation beside the loader in the build, which keeps what was built from the same
    files. One level is left to the compiler in the image; each takes it half a minute."""
    for library in sorted((ROOT / NATIVE).glob("*.so")):
        if library.stem != "plain":
            yield from ("--volume", f"{library}:/src/{NATIVE}/{library.name}:ro")


def _pip_options() -> dict[str, str]:
    listed = subprocess.run([sys.executable, "-m", "pip", "config", "list"], capture_output=True, text=True, check=True)
    return {key.rpartition(".")[2]: value for key, value in re.findall(r"^(\S+?)='(.*)'$", listed.stdout, re.MULTILINE)}


def _pip_index() -> str:
    return _pip_options().get("index-url", "https://pypi.org/simple")


def _pip_volumes(configuration: Path) -> Iterator[str]:
    """Mounts pip's configuration of this machine, and the files and directories that it names."""
    options = _pip_options()
    configuration.write_text("[global]\n" + "".join(f"{key} = {value}\n" for key, value in options.items()))
    yield from ("--volume", f"{configuration}:/etc/pip.conf:ro")
    words = [word for value in options.values() for word in value.split()]
    paths = [Path(word) for word in words if word.startswith("/")]
    # The files of an index lie beside it.
    paths += [Path(urlsplit(word).path).parent for word in words if word.startswith("file:")]
    for path in dict.fromkeys(path for path in paths if path.exists()):
        yield from ("--volume", f"{path}:{path}:ro")
