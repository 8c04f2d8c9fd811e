"""How long one tenant waits beside another tenant's attacks: a victim beside each attack of benchmarks/attacks.py.

    .venv/bin/python benchmarks/neighbours.py [--seconds 20] [--attack texts --attack "one request"] [--form once]

The server has one thread, MiniLM, small memory budgets, and two tenants of equal weight. The victim sends one short
text at a time, and in parallel one text of 5 KB at a time: first alone, then while the other tenant attacks from its
own process. Each attack has two forms. `endless`: its callers send one request after another. `once`: each of them
sends one request and then nothing, and the victim is watched until the last one has ended, or for `--most` seconds;
`after` is what it sees in the seconds that follow.

The table has a line for each form and text, in milliseconds: the victim's p50 and p99 alone just before, then its p50,
p99 and maximum beside the attack; the ratio of both p99; the victim's failed answers; the seconds that the attack took;
the server's peak memory; and the statuses that the attacker read. The last lines have all attacks at once.
"""

import asyncio
import json
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from attacks import ATTACKS, NUM_COSTLY, NUM_HOGS, NUM_LISTED
from common.adapters import INPUTS, make_bytes, make_task
from common.callers import connections, request_bytes, run, status_of
from common.harness import Table, create_parser, percentile
from common.memory import ProcessMemory
from common.serving import Server, serving
from common.tenants import ENVIRONMENT, create_tenant
from peltier_backbone.backbone import Backbone
from peltier_backbone.load import load_backbone
from peltier_client import AsyncClient, PeltierError
from peltier_client.errors import ConnectionFailed

DEVICE_MIB, HOST_MIB = 192, 64
SHORT, LONG = "my card was stolen", " ".join([INPUTS[-1]] * 40)[:5000]
NOBODY = "nobody"
FORMS = ("endless", "once")
_PAUSE_SECONDS = 0.02
_WARM_SECONDS, _CALM_SECONDS = 3.0, 120.0
# From the highest cost down: the attacker takes the first that the server accepts.
_COSTLY: tuple[tuple[str, Mapping[str, str | int]], ...] = (
    ("phm", {"n": 32, "bottleneck": 4096}),
    *(("houlsby", {"bottleneck": size}) for size in (4096, 2048, 1024, 768, 512, 384, 256, 128, 64)),
)
_LABELS = ((4096, 240), (4096, 100), (4096, 50), (1024, 240), (1024, 50), (512, 50), (150, 50))


@dataclass
class VictimAnswers:
    """Seconds of each answer that the victim got, and the statuses of failed requests."""

    seconds: list[float] = field(default_factory=list)
    failures: Counter[str] = field(default_factory=Counter)

    def percentile_ms(self, percent: float) -> float:
        """A percentile of the answers' times, in milliseconds."""
        return 1e3 * percentile(self.seconds, percent)


async def watch(url: str, request: bytes, has_ended: Callable[[], bool]) -> VictimAnswers:
    """Sends one request at a time until `has_ended`, and waits for the last answer."""
    seen = VictimAnswers()
    async with connections(url, 1) as (connection,):
        while not has_ended():
            begun = time.monotonic()
            try:
                await connection.ask(request)
                seen.seconds.append(time.monotonic() - begun)
            except RuntimeError as error:
                seen.failures[status_of(error)] += 1
            await asyncio.sleep(_PAUSE_SECONDS)
    return seen


async def watch_both(url: str, requests: Sequence[bytes], has_ended: Callable[[], bool]) -> list[VictimAnswers]:
    """Runs each request with its own caller until `has_ended`."""
    return list(await asyncio.gather(*(watch(url, request, has_ended) for request in requests)))


def in_seconds(seconds: float) -> Callable[[], bool]:
    """Whether these seconds, from now, have passed."""
    end = time.monotonic() + seconds
    return lambda: time.monotonic() > end


def candidates(backbone: Backbone, kind: str) -> Iterator[Iterator[tuple[str, bytes]]]:
    """Ways to make the adapters of `kind`, from the highest cost down: pairs of their names and their files."""

    def several(name: str, count: int, preset: str, **settings: str | int) -> Iterator[tuple[str, bytes]]:
        return ((f"{name}-{number}", make_bytes(backbone, preset, number, **settings)) for number in range(count))

    if kind == "plain":
        yield iter([("plain", make_bytes(backbone, "compacter", 1))])
    elif kind == "prefix":
        yield iter([("prefix", make_bytes(backbone, "prefix", 2, length=512))])
    elif kind == "hogs":
        yield several("hog", NUM_HOGS, "houlsby", bottleneck=240)
    elif kind == "costly":
        for preset, settings in _COSTLY:
            yield several("costly", NUM_COSTLY, preset, **settings)
    else:
        for count, length in _LABELS:
            task = make_task(backbone, [f"{number:04}".ljust(length, "x") for number in range(count)])
            data = make_bytes(backbone, "bitfit", 3, task=task)
            yield iter((name, data) for name in ("labels", *(f"listed-{number}" for number in range(NUM_LISTED))))


async def publish(backbone: Backbone, client: AsyncClient, kind: str) -> None:
    """Publishes the adapters of `kind`, of the highest cost that the server accepts."""
    for adapters in candidates(backbone, kind):
        name, data = next(adapters)
        try:
            await client.upload(data, name=name)
        except PeltierError as error:
            # The server may close the connection of a body that is too large before its answer is read.
            outcome = "no answer" if isinstance(error, ConnectionFailed) else "refused"
            print(f"{outcome}: {name}, {len(data) / 2**20:.1f} MiB: {str(error)[:200]}")
            continue
        print(f"accepted: {name}, {len(data) / 2**20:.1f} MiB", flush=True)
        for name, data in adapters:
            await client.upload(data, name=name)
        return


class Attackers:
    """The processes of attacks, from the moment in which each has begun. `statuses` is filled when they end."""

    def __init__(self, names: Sequence[str], url: str, key: str, *, once: bool) -> None:
        command = [sys.executable, str(Path(__file__).with_name("attacks.py")), "--url", url, "--key", key]
        command += ["--once"] * once
        self._running = [subprocess.Popen([*command, name], stdout=subprocess.PIPE) for name in names]
        self._begun = time.monotonic()
        self.statuses: Counter[str] = Counter()
        self.seconds = 0.0
        for process in self._running:
            assert process.stdout is not None
            process.stdout.readline()

    def have_ended(self) -> bool:
        """Whether every request of attacks that send once has ended."""
        return all(process.poll() is not None for process in self._running)

    def __enter__(self) -> "Attackers":
        self._begun = time.monotonic()
        return self

    def __exit__(self, *_: object) -> None:
        """Stops all that have not ended."""
        self.seconds = time.monotonic() - self._begun
        for process in self._running:
            process.send_signal(signal.SIGTERM)
        for process in self._running:
            out, _ = process.communicate(timeout=60)
            self.statuses.update(json.loads(out or "{}"))


@dataclass(frozen=True)
class AttackedServer:
    """A server, the victim's two requests, and the attacker's key."""

    server: Server
    requests: tuple[bytes, bytes]
    key: str
    seconds: float
    most_seconds: float
    table: Table

    def show(self, names: Sequence[str], what: str, form: str) -> None:
        """Prints the lines of one form of the attacks."""
        memory = ProcessMemory(self.server.process.pid)
        alone = self._watch(in_seconds(self.seconds / 2))
        memory.forget()
        once = form == "once"
        with Attackers(names, self.server.url, self.key, once=once) as attackers:
            if once:
                is_late = in_seconds(self.most_seconds)
                beside = self._watch(lambda: attackers.have_ended() or is_late())
            else:
                time.sleep(_WARM_SECONDS)
                beside = self._watch(in_seconds(self.seconds))
        read = " ".join(f"{code}:{count}" for code, count in sorted(attackers.statuses.items()))
        rest = f"{attackers.seconds:.1f}", f"{memory.peak_mib:.0f}", f"  {read}"
        self._print((what, form), alone, beside, *rest)
        if once:
            self._print((what, "after"), alone, self._watch(in_seconds(self.seconds / 2)))
        run(self._wait_until_calm(alone[0].percentile_ms(50)))

    def _watch(self, has_ended: Callable[[], bool]) -> list[VictimAnswers]:
        return run(watch_both(self.server.url, self.requests, has_ended))

    def _print(
        self, name: tuple[str, str], alone: Sequence[VictimAnswers], beside: Sequence[VictimAnswers], *rest: str
    ) -> None:
        for text, before, own in zip(("short", "5 KB"), alone, beside, strict=True):
            shown = *map(before.percentile_ms, (50, 99)), *map(own.percentile_ms, (50, 99, 100))
            times = own.percentile_ms(99) / before.percentile_ms(99)
            lost = " ".join(f"{code}:{count}" for code, count in (before.failures + own.failures).items()) or "-"
            self.table.row(", ".join((*name, text)), *(f"{ms:.0f}" for ms in shown), f"{times:.1f}", lost, *rest)

    async def _wait_until_calm(self, usual_ms: float) -> None:
        """Waits until the victim's answers are as fast as usual, because the attack's requests have ended."""
        is_late = in_seconds(_CALM_SECONDS)
        while not is_late():
            (seen,) = await watch_both(self.server.url, self.requests[:1], in_seconds(1))
            if seen.percentile_ms(100) < 2 * usual_ms:
                return


async def settle_in(url: str, backbone: Backbone, kinds: Collection[str]) -> tuple[str, str]:
    """Creates the keys of the victim and of the attacker, and publishes the attacker's adapters of `kinds`."""
    keys = [await create_tenant(url, tenant) for tenant in ("victim", "attacker")]
    async with AsyncClient(url, keys[0], timeout=300) as victim:
        await victim.upload(make_bytes(backbone, "compacter", 0), name="demo")
    async with AsyncClient(url, keys[1], timeout=300) as attacker:
        for kind in sorted(kinds):
            await publish(backbone, attacker, kind)
    return keys[0], keys[1]


def main() -> None:
    parser = create_parser(__doc__, seconds=20.0, most=60.0)
    parser.add_argument("--attack", choices=list(ATTACKS), action="append", help="these alone")
    parser.add_argument("--form", choices=FORMS, action="append", help="this one alone")
    given = parser.parse_args()
    backbone, names = load_backbone("minilm"), given.attack or list(ATTACKS)
    budgets = ("--device-bytes", str(DEVICE_MIB * 2**20), "--host-bytes", str(HOST_MIB * 2**20))
    with serving(*budgets, environment=ENVIRONMENT) as server:
        empty = ProcessMemory(server.process.pid).now_mib
        kinds = {kind for name in names for kind in ATTACKS[name].adapters}
        victim, attacker = asyncio.run(settle_in(server.url, backbone, kinds))
        path = "/v1/tasks/demo/predict"
        requests = (request_bytes(path, {"inputs": SHORT}, victim), request_bytes(path, {"inputs": LONG}, victim))
        print(f"budgets: device {DEVICE_MIB} MiB, host {HOST_MIB} MiB; the process at its start: {empty:.0f} MiB")
        table = Table("attack", "p50", "p99", "p50", "p99", "max", "times", "failed", "s", "MiB", "  it read")
        stage = AttackedServer(server, requests, attacker, given.seconds, given.most, table)
        for form in given.form or FORMS:
            for name in names:
                if (name, form) != (NOBODY, "once"):
                    stage.show([name], name, form)
            if given.attack is None:
                stage.show([name for name in ATTACKS if name != NOBODY], "all at once", form)


if __name__ == "__main__":
    main()
