"""A fleet on one machine: PostgreSQL, an S3 server, replicas of Peltier and HAProxy, each a process on loopback.

Every replica reaches the database and the bucket through proxies of its own, and the balancer reaches it through a
third one, so that each connection can be cut.
"""

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx2
from alembic.script import ScriptDirectory
from common import s3_server
from common.fault_proxy import FaultProxy, Mode
from common.ports import ReservedPort
from common.postgres_server import run_postgres
from common.serving import PELTIER, Server
from peltier_store.registry.schema import MIGRATIONS

ROOT = Path(__file__).parents[2]
_START_SECONDS, _STOP_SECONDS = 300, 60
# HAProxy's lines of servers: their first one is the pattern of the others.
_SERVER_LINE = re.compile(r'^ *server \w+ "\$\{PELTIER_REPLICA_(\d+)[^}]*\}".*\n', re.MULTILINE)
_MIGRATION = '''"""A column that the next release would add."""

import sqlalchemy as sa
from alembic import op

revision = "{revision}"
down_revision = "{head}"


def upgrade() -> None:
    op.add_column("adapters", sa.Column("of_the_next_release", sa.Text(), nullable=True))
    op.create_table("of_the_next_release", sa.Column("id", sa.Integer(), primary_key=True))
'''


@dataclass(frozen=True)
class SharedStore:
    """The database and the bucket of a fleet, at their own addresses."""

    postgres_port: int
    database: str
    s3_port: int

    def registry(self, port: int | None = None) -> str:
        """The registry's URL, through the proxy at `port`."""
        return f"postgresql+asyncpg://postgres@127.0.0.1:{port or self.postgres_port}/{self.database}"

    def blobs(self, port: int | None = None) -> str:
        """The blob store's URL, through the proxy at `port`."""
        options = f"endpoint=http://127.0.0.1:{port or self.s3_port}&allow_http=true&timeout=5"
        return f"s3://{s3_server.BUCKET}/fleet?{options}"


class FleetReplica:
    """One replica at a fixed port, which may end and begin again, with the proxies around it."""

    def __init__(self, store: SharedStore, log: Path, stack: ExitStack) -> None:
        self._port = stack.enter_context(ReservedPort()).number
        self.database = stack.enter_context(FaultProxy("127.0.0.1", store.postgres_port).running())
        self.bucket = stack.enter_context(FaultProxy("127.0.0.1", store.s3_port).running())
        self.front = stack.enter_context(FaultProxy("127.0.0.1", self._port).running())
        places = ["--registry", store.registry(self.database.port), "--store", store.blobs(self.bucket.port)]
        self._command = [*PELTIER, "serve", "--port", str(self._port), "--threads", "1", *places]
        self.path: str | None = None
        self._log = log
        stack.callback(self.kill)

    @property
    def url(self) -> str:
        """Its own address, without the proxy."""
        return f"http://127.0.0.1:{self._port}"

    def launch(self) -> None:
        """Starts the process, with the packages of `path` before all others."""
        own = {**os.environ, "OMP_NUM_THREADS": "1"}
        if self.path is not None:
            own["PYTHONPATH"] = os.pathsep.join([self.path, *filter(None, [os.environ.get("PYTHONPATH")])])
        with self._log.open("ab") as log:
            process = subprocess.Popen(self._command, env=own, stderr=log, stdout=log)
        self.server = Server(self.url, process)

    def start(self) -> None:
        """Starts the process; returns when it is ready."""
        self.launch()
        self.wait()

    def wait(self) -> None:
        """Returns when the process is ready."""
        self.server.wait_until_ready(_START_SECONDS)
        self.front.set_mode("open")

    def stop(self) -> None:
        """SIGTERM; returns when it has ended."""
        self.server.process.send_signal(signal.SIGTERM)
        status = self.server.process.wait(_STOP_SECONDS)
        # The proxy would accept connections that nothing listens to.
        self.front.set_mode("refused")
        assert status == 0, f"a replica ended with status {status}"

    def kill(self) -> None:
        """SIGKILL, if it runs."""
        if hasattr(self, "server") and self.server.process.poll() is None:
            self.server.process.kill()
            self.front.set_mode("refused")
            self.server.process.wait()

    @contextmanager
    def partitioned(self, *proxies: FaultProxy, mode: Mode) -> Iterator[None]:
        """Some of its connections are in this mode while the block runs."""
        for proxy in proxies:
            proxy.set_mode(mode)
        try:
            yield
        finally:
            for proxy in proxies:
                proxy.set_mode("open")

    def residents(self) -> float:
        """The adapters on its device."""
        lines = httpx2.get(f"{self.url}/metrics", timeout=30).text.splitlines()
        return sum(float(line.split()[-1]) for line in lines if line.startswith('peltier_adapters{tier="device"}'))


@contextmanager
def shared_store() -> Iterator[SharedStore]:
    """PostgreSQL and moto's S3 server, empty."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        os.environ |= {"AWS_ACCESS_KEY_ID": "benchmark", "AWS_SECRET_ACCESS_KEY": "benchmark"}
        os.environ["PELTIER_SECRET"] = 64 * "5"
        postgres = stack.enter_context(run_postgres())
        s3 = stack.enter_context(s3_server.start(s3_server.moto(directory), directory / "log"))
        yield SharedStore(postgres.port, postgres.create_database(), int(s3.endpoint.rpartition(":")[2]))


@contextmanager
def balancing(replicas: Sequence[FleetReplica], log: Path) -> Iterator[str]:
    """The URL of a HAProxy with deploy/haproxy.cfg, whose lines of servers are repeated for each replica."""
    shipped = (ROOT / "deploy" / "haproxy.cfg").read_text()
    addresses = {f"PELTIER_REPLICA_{number}": f"127.0.0.1:{one.front.port}" for number, one in enumerate(replicas, 1)}
    with ReservedPort() as port, tempfile.TemporaryDirectory() as directory, log.open("ab") as output:
        bind = f"127.0.0.1:{port.number}"
        config = Path(directory) / "haproxy.cfg"
        config.write_text(_with_servers(shipped, len(replicas)))
        command = [str(shutil.which("haproxy")), "-f", str(config)]
        process = subprocess.Popen(command, env={**os.environ, "PELTIER_BIND": bind, **addresses}, stderr=output)
        try:
            Server(f"http://{bind}", process).wait_until_ready()
            yield f"http://{bind}"
        finally:
            process.kill()
            process.wait()


def _with_servers(config: str, count: int) -> str:
    def replaced(line: re.Match[str]) -> str:
        if line[1] != "1":
            return ""
        others = (re.sub(r"server \w+", f"server r{number}", line[0]) for number in range(1, count + 1))
        return "".join(one.replace("PELTIER_REPLICA_1", f"PELTIER_REPLICA_{n}") for n, one in enumerate(others, 1))

    changed = _SERVER_LINE.sub(replaced, config)
    assert changed.count("PELTIER_REPLICA_1-") >= 1, "deploy/haproxy.cfg has no server PELTIER_REPLICA_1"
    return changed


@contextmanager
def next_release() -> Iterator[str]:
    """A folder with the package of the store as a next release would have it: one more migration of the schema."""
    head = ScriptDirectory(str(MIGRATIONS)).get_current_head()
    with tempfile.TemporaryDirectory() as directory:
        package = Path(directory) / "peltier_store"
        shutil.copytree(MIGRATIONS.parents[1], package, ignore=shutil.ignore_patterns("__pycache__"))
        versions = package / "registry" / "migrations" / "versions"
        (versions / "9999_next.py").write_text(_MIGRATION.format(revision="9999", head=head))
        yield directory
