"""What crashes and restores of PostgreSQL leave behind at three replicas: changes refused, old versions, revoked keys.

    .venv/bin/python -m tests.crash.database_crashes [--crashes 200] [--seed 0] [--backbone minilm]

It needs PostgreSQL (Debian: apt-get install postgresql). Three replicas share the database. Until each crash a writer
at each replica moves aliases, creates and revokes keys, and uploads bytes again; predictions are recorded for feedback,
so the replicas report them once a second. PostgreSQL is stopped without a checkpoint at a random moment, with a WAL
writer that waits for 0.2 s or for 10 s, and starts again; one of five times with the data of the crash before. In one
half of the crashes a process that has seen nothing before writes first, as a new replica does.

Then each replica is asked for changes, for the versions that the aliases mean, and with every key. A crash counts as
`stuck` if a replica refuses changes or is not ready after ten seconds, as `divergent` if one answers by another version
than the registry says after ten seconds, as `accepted` if one accepts a key that is not valid in the registry two
seconds after the database is back and the key revoked, as `silent` if `/ready` says 200 at a replica with such a fault,
and as `lost` if an acknowledged revocation is gone without a restore. After a fault all replicas start again.
"""

import asyncio
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field

import httpx2
from peltier_backbone.load import load_backbone
from peltier_store.registry.database import database_url
from peltier_store.registry.extensions.registry import Registry
from peltier_store.registry.records import RegistrySnapshot

from benchmarks.common.adapters import make_bytes, make_task
from benchmarks.common.harness import create_parser, print_milliseconds
from benchmarks.common.serving import PELTIER, started
from benchmarks.common.tenants import ENVIRONMENT, OPERATOR
from tests.support.postgres_server import PostgresServer, run_postgres

NUM_REPLICAS, NUM_TASKS, NUM_VERSIONS = 3, 12, 3
RESTORE_EVERY = 5
MAX_WORKING_SECONDS, MAX_QUIET_SECONDS, PAUSE_SECONDS = 1.0, 2.0, 0.05
REVOKED_SECONDS, RECOVERY_SECONDS = 2.0, 10.0
WAL_WRITER_DELAYS = ("200ms", "10s")
TASKS = [f"task-{number:02}" for number in range(NUM_TASKS)]
FAULTS = ("stuck", "divergent", "accepted", "silent", "lost")


@dataclass
class Keys:
    """Every key that was created, by its prefix, and the prefixes whose revocation was acknowledged."""

    secrets: dict[str, str] = field(default_factory=dict)
    revoked: set[str] = field(default_factory=set)

    def create(self, client: httpx2.Client) -> None:
        """Creates a valid key."""
        answer = client.post("/v1/keys", json={"scopes": ["predict"]})
        if answer.is_success:
            self.secrets[answer.json()["prefix"]] = answer.json()["key"]

    def revoke(self, client: httpx2.Client, prefix: str | None) -> None:
        """Revokes a key, which a restore may have removed."""
        if prefix and client.delete(f"/v1/keys/{prefix}").is_success:
            self.revoked.add(prefix)

    def draw(self, draw: random.Random) -> str | None:
        """A key whose revocation was not acknowledged."""
        left = sorted(self.secrets.keys() - self.revoked)
        return draw.choice(left) if left else None


class CrashFleet:
    """Three replicas, a client of each, and the keys that they have created."""

    def __init__(self, flags: Sequence[str], artifacts: Sequence[bytes], draw: random.Random) -> None:
        self.keys, self.clients = Keys(), list[httpx2.Client]()
        self._flags, self._artifacts, self._draw = flags, artifacts, draw
        self.running = ExitStack()

    def start(self) -> None:
        """Starts the replicas, after the end of earlier ones."""
        self.running.close()
        command, headers = [*PELTIER, "serve", "--threads", "1", *self._flags], {"authorization": f"Bearer {OPERATOR}"}
        environment = {**ENVIRONMENT, "PELTIER_SECRET": 64 * "5"}
        servers = [self.running.enter_context(started(command, environment)) for _ in range(NUM_REPLICAS)]
        clients = (httpx2.Client(base_url=server.url, headers=headers, timeout=30) for server in servers)
        self.clients = [self.running.enter_context(client) for client in clients]

    def publish(self) -> None:
        """Publishes all versions of all tasks."""
        for task in TASKS:
            for data in self._artifacts:
                upload(self.clients[0], task, data).raise_for_status()
            point(self.clients[0], task, 1).raise_for_status()

    @contextmanager
    def working(self) -> Iterator[Callable[[], None]]:
        """All replicas get changes until the yielded function is called, and predictions until the block ends."""
        quiet, end = threading.Event(), threading.Event()
        with ThreadPoolExecutor(2 * NUM_REPLICAS) as pool:
            work = [pool.submit(self._predict, end, client) for client in self.clients]
            work += [pool.submit(self._change, quiet, one, random.Random(self._draw.random())) for one in self.clients]
            try:
                yield quiet.set
            finally:
                quiet.set()
                end.set()
        for one in work:
            one.result()

    def _change(self, end: threading.Event, client: httpx2.Client, draw: random.Random) -> None:
        while not end.is_set():
            kind, task = draw.random(), draw.choice(TASKS)
            if kind < 0.3:
                point(client, task, draw.randint(1, NUM_VERSIONS))
            elif kind < 0.5:
                self.keys.create(client)
            elif kind < 0.65:
                self.keys.revoke(client, self.keys.draw(draw))
            else:
                upload(client, task, draw.choice(self._artifacts))

    @staticmethod
    def _predict(end: threading.Event, client: httpx2.Client) -> None:
        while not end.wait(PAUSE_SECONDS):
            versions(client)


def point(client: httpx2.Client, task: str, version: int) -> httpx2.Response:
    """Moves the alias that answers the bare name of a task."""
    return client.put(f"/v1/adapters/{task}/aliases/production", json={"version": version})


def upload(client: httpx2.Client, task: str, data: bytes) -> httpx2.Response:
    return client.post("/v1/adapters", files={"file": data}, data={"name": task})


def versions(client: httpx2.Client) -> dict[str, int]:
    """The version that answers each task."""
    answer = client.post("/v1/predict", json={"tasks": TASKS, "input": "a good film"})
    found = answer.json()["results"] if answer.is_success else []
    return {one["adapter"]["name"]: one["adapter"]["version"] for one in found if "adapter" in one}


def is_ready(client: httpx2.Client) -> bool:
    return client.get("/ready").is_success


def refuses(client: httpx2.Client, secrets: Sequence[str]) -> bool:
    """Whether a replica refuses all of these keys."""
    headers = ({"authorization": f"Bearer {secret}"} for secret in secrets)
    return all(client.get("/v1/adapters/task-00", headers=own).status_code == 401 for own in headers)


def holds_within(seconds: float, since: float, condition: Callable[[], bool]) -> bool:
    """Waits until the condition holds; returns whether it did within `seconds` after `since`."""
    while not condition():
        if time.monotonic() > since + seconds:
            return False
        time.sleep(PAUSE_SECONDS)
    return True


async def write_first(url: str, draw: random.Random, prefix: str | None) -> None:
    """Moves some aliases and revokes a key by a connection that has seen nothing of the registry before."""
    registry = Registry(database_url(url))
    for task in draw.sample(TASKS, draw.randint(1, 4)):
        await registry.set_alias("default", task, "production", {draw.randint(1, NUM_VERSIONS): 1.0}, actor="stranger")
    if prefix in {key.prefix for key in (await registry.snapshot()).keys}:
        await registry.revoke_key(str(prefix), actor="stranger")
    await registry.close()


async def read_truth(url: str) -> RegistrySnapshot:
    """The state of the registry."""
    registry = Registry(database_url(url))
    snapshot = await registry.snapshot()
    await registry.close()
    return snapshot


@dataclass
class Aftermath:
    """The faults of each replica after one crash, and the seconds until each was as the registry is."""

    faults: dict[str, set[int]] = field(default_factory=lambda: {fault: set() for fault in FAULTS})
    seconds: list[float] = field(default_factory=list)

    def ask(self, fleet: CrashFleet, url: str, draw: random.Random, back: float, *, restored: bool) -> None:
        """Asks each replica for changes, and compares it with the registry."""
        keys = fleet.keys
        for number, client in enumerate(fleet.clients):
            version, victim = draw.randint(1, NUM_VERSIONS), keys.draw(draw)
            moved = holds_within(RECOVERY_SECONDS, back, lambda: point(client, TASKS[number], version).is_success)  # noqa: B023
            if moved:
                keys.revoke(client, victim)
            if not (moved and holds_within(RECOVERY_SECONDS, back, lambda: is_ready(client))):  # noqa: B023
                self.faults["stuck"].add(number)
        changed, truth = time.monotonic(), asyncio.run(read_truth(url))
        valid = {key.prefix for key in truth.keys if key.revoked_at is None}
        if not restored and keys.revoked & valid:
            self.faults["lost"].add(0)
        invalid = [secret for prefix, secret in keys.secrets.items() if prefix not in valid]
        for number, client in enumerate(fleet.clients):
            if not holds_within(REVOKED_SECONDS, changed, lambda: refuses(client, invalid)):  # noqa: B023
                self.faults["accepted"].add(number)
        meant = {one.name: next(iter(one.aliases[0].split)) for one in truth.adapters}
        for number, client in enumerate(fleet.clients):
            if not holds_within(RECOVERY_SECONDS, changed, lambda: versions(client) == meant):  # noqa: B023
                self.faults["divergent"].add(number)
            self.seconds.append(time.monotonic() - back)
        faulty = set[int]().union(*self.faults.values())
        self.faults["silent"] = {number for number in faulty if is_ready(fleet.clients[number])}
        keys.secrets = {prefix: secret for prefix, secret in keys.secrets.items() if prefix in valid}
        # A restore has made keys valid again whose revocation was acknowledged before.
        keys.revoked.clear()


def crash(fleet: CrashFleet, postgres: PostgresServer, url: str, draw: random.Random, number: int) -> Aftermath:
    """One crash and its aftermath."""
    aftermath, restored = Aftermath(), number % RESTORE_EVERY == RESTORE_EVERY - 1
    postgres.execute("postgres", f"ALTER SYSTEM SET wal_writer_delay = '{draw.choice(WAL_WRITER_DELAYS)}'")
    postgres.execute("postgres", "SELECT pg_reload_conf()")
    with fleet.working() as be_quiet:
        time.sleep(draw.uniform(0, MAX_WORKING_SECONDS))
        be_quiet()
        # The last writes are then the reports.
        time.sleep(draw.uniform(0, MAX_QUIET_SECONDS))
        postgres.stop()
    if restored:
        postgres.restore("older")
    elif number % RESTORE_EVERY == RESTORE_EVERY - 2:
        postgres.save("older")
    postgres.start()
    back = time.monotonic()
    if draw.random() < 0.5:
        asyncio.run(write_first(url, draw, fleet.keys.draw(draw)))
    aftermath.ask(fleet, url, draw, back, restored=restored)
    found = ", ".join(f"{fault} {sorted(numbers)}" for fault, numbers in aftermath.faults.items() if numbers)
    print(f"{'restore' if restored else 'crash'} {number}: {found or 'well'}", flush=True)
    if found:
        fleet.start()
    return aftermath


def measure(backbone: str, num_crashes: int, seed: int) -> list[Aftermath]:
    """What each of these crashes has left behind at replicas with this backbone."""
    draw, loaded = random.Random(seed), load_backbone(backbone)
    task = make_task(loaded, max_length=64)
    artifacts = [make_bytes(loaded, "bitfit", number, task=task) for number in range(NUM_VERSIONS)]
    with tempfile.TemporaryDirectory() as directory, run_postgres() as postgres, ExitStack() as stack:
        url = postgres.url(postgres.create_database())
        places = ["--backbone", backbone, "--registry", url, "--store", f"{directory}/store"]
        others = ["--recorded-answers-per-second", "100", "--lame-duck-seconds", "0", "--log-level", "critical"]
        fleet = CrashFleet([*places, *others], artifacts, draw)
        stack.callback(fleet.running.close)
        fleet.start()
        fleet.publish()
        return [crash(fleet, postgres, url, draw, number) for number in range(num_crashes)]


def main() -> None:
    parser = create_parser(__doc__, crashes=200, seed=0, backbone="minilm")
    asked, begun = parser.parse_args(), time.monotonic()
    found = measure(asked.backbone, asked.crashes, asked.seed)
    counts = Counter(fault for one in found for fault, numbers in one.faults.items() if numbers)
    print(f"{len(found)} crashes, one of {RESTORE_EVERY} with older data, in {time.monotonic() - begun:.0f} s:")
    print(", ".join(f"{counts[fault]} {fault}" for fault in FAULTS))
    print_milliseconds("until a replica is as the registry", [second for one in found for second in one.seconds])


if __name__ == "__main__":
    main()
