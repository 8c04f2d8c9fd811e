"""Starts the services of docker-compose.yml as processes, for a machine without a container engine.

    PELTIER_ADMIN_KEY=... PELTIER_METRICS_KEY=... .venv/bin/python deploy/processes.py --state DIR [--offset N]

Commands, environment, volumes, secrets and ports are those of docker-compose.yml, and the image's environment is that
of the Dockerfile. A named volume is a folder of DIR; N is added to every port. Each service listens on loopback.
Prometheus must be installed; Grafana is left out. Ctrl-C ends all.
"""

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parent.parent
# What a service is where it is a process. Debian has no Grafana.
_PROGRAMS = {"server": (str(Path(sys.executable).with_name("peltier")), "serve"), "prometheus": ("prometheus",)}
_STOP_SECONDS = 60


@dataclass(frozen=True)
class Stack:
    """The services of a compose file, the folder of their state and what is added to their ports."""

    compose: Mapping[str, Any]
    state: Path
    offset: int

    def port(self, service: str) -> int:
        """Where it listens on loopback."""
        (published,) = self.compose["services"][service]["ports"]
        return int(published.split(":")[-2]) + self.offset

    def outside(self, service: str, path: str) -> str:
        """The path on this machine of a path in a container; itself where no volume or secret has it."""
        for volume in self.compose["services"][service].get("volumes", ()):
            source, target = volume.split(":")[:2]
            folder = self.state / source if source in self.compose["volumes"] else ROOT / source
            if path == target or path.startswith(f"{target}/"):
                return str(folder / path.removeprefix(target).lstrip("/"))
        return str(self.state / path.lstrip("/")) if path.startswith("/run/secrets/") else path


def read_stack(state: Path, offset: int) -> Stack:
    """The compose file with the variables of this process; exits with the file's own sentence where one is absent."""
    text = re.sub(r"\$\{(\w+):\?(.+?)\}", _variable, (ROOT / "docker-compose.yml").read_text())
    return Stack(yaml.safe_load(text), state, offset)


def _variable(found: re.Match[str]) -> str:
    value = os.environ.get(found[1])
    if not value:
        raise SystemExit(f"error: {found[2]}")
    return value


def prepare(stack: Stack) -> None:
    """Makes the folders of the named volumes and the files of the secrets, which only this user may read."""
    for volume in stack.compose["volumes"]:
        (stack.state / volume).mkdir(parents=True, exist_ok=True)
    secrets = stack.state / "run" / "secrets"
    secrets.mkdir(parents=True, exist_ok=True)
    for name, secret in stack.compose["secrets"].items():
        file = secrets / name
        file.touch(mode=0o600)
        file.write_text(os.environ[secret["environment"]])


def server_command(stack: Stack) -> list[str]:
    """The server's flags, with paths of this machine."""
    flags = stack.compose["services"]["server"]["command"]
    return [*_PROGRAMS["server"], *(stack.outside("server", flag) for flag in flags)]


def server_environment(stack: Stack) -> dict[str, str]:
    """The server's settings of the image and of compose; it listens on loopback."""
    image = (ROOT / "Dockerfile").read_text().rpartition("\nFROM ")[2].replace("\\\n", " ")
    words = [word for line in re.findall(r"^ENV (.+)$", image, re.MULTILINE) for word in shlex.split(line)]
    own = dict(word.split("=", 1) for word in words if word.startswith("PELTIER_"))
    own |= stack.compose["services"]["server"]["environment"]
    own = {name: stack.outside("server", value) for name, value in own.items()}
    return {**os.environ, **own, "PELTIER_HOST": "127.0.0.1", "PELTIER_PORT": str(stack.port("server"))}


def prometheus_command(stack: Stack) -> list[str]:
    """Prometheus with its shipped configuration, whose addresses and paths become those of this machine."""
    shipped = Path(stack.outside("prometheus", "/etc/prometheus/prometheus.yml"))
    config = yaml.safe_load(shipped.read_text())
    config["rule_files"] = [str(shipped.parent / file) for file in config["rule_files"]]
    for job in config["scrape_configs"]:
        key = job["authorization"]
        key["credentials_file"] = stack.outside("prometheus", key["credentials_file"])
        job["static_configs"] = [{"targets": [f"127.0.0.1:{stack.port('server')}"]}]
    file = stack.state / "prometheus.yml"
    file.write_text(yaml.safe_dump(config))
    data = stack.outside("prometheus", "/prometheus")
    listen = f"--web.listen-address=127.0.0.1:{stack.port('prometheus')}"
    return [*_PROGRAMS["prometheus"], f"--config.file={file}", f"--storage.tsdb.path={data}", listen]


@contextmanager
def running(command: list[str], environment: Mapping[str, str], log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A process that is told to stop at the end, and is killed after a minute."""
    with log.open("wb") as output:
        process = subprocess.Popen(command, env=environment, stdout=output, stderr=output, start_new_session=True)  # noqa: S603
    try:
        yield process
    finally:
        process.terminate()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--state", type=Path, required=True)
    parser.add_argument("--offset", type=int, default=0)
    options = parser.parse_args()
    stack = read_stack(options.state.absolute(), options.offset)
    prepare(stack)
    commands = {"server": server_command(stack), "prometheus": prometheus_command(stack)}
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    with ExitStack() as stopping:
        processes = {}
        for name, command in commands.items():
            environment = server_environment(stack) if name == "server" else os.environ
            processes[name] = stopping.enter_context(running(command, environment, stack.state / f"{name}.log"))
            print(f"{name}: http://127.0.0.1:{stack.port(name)}, log {stack.state / name}.log", flush=True)
        for name in stack.compose["services"].keys() - commands.keys():
            print(f"{name}: left out, it is not a program of this machine", flush=True)
        wait_for_an_end(processes)


def wait_for_an_end(processes: Mapping[str, subprocess.Popen[bytes]]) -> None:
    """Returns on Ctrl-C; exits with a sentence if a process ends by itself."""
    try:
        while True:
            for name, process in processes.items():
                if process.poll() is not None:
                    raise SystemExit(f"error: {name} has ended with status {process.returncode}; its log says why")
            time.sleep(0.2)
    except KeyboardInterrupt:
        print("stopping", flush=True)


if __name__ == "__main__":
    main()
