"""How long one tenant waits beside another tenant's attacks: a victim beside each attack of benchmarks/attacks.py.

    .venv/bin/python benchmarks/neighbours.py [--seconds 20] [--attack texts --attack "one request"]

The server has one thread, MiniLM, small memory budgets, and two tenants of equal weight. The victim sends one short
text at a time, and in parallel one text of 5 KB at a time: first alone, then while the other tenant attacks from its
own process. The table has a line for each attack: the victim's p50, p99 and maximum in milliseconds, the ratio of its
p99 to its p99 alone just before, the victim's failed answers, the statuses that the attacker read, and the server's
peak memory.

The attacker of "one request" sends one large request and then nothing; this attack ends with its answer. The last line
has all other attacks at once.
"""

import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from attacks import ATTACKS, NUM_COSTLY, NUM_HOGS, NUM_LISTED, predict
from common.adapters import INPUTS, make_bytes, make_task
from common.callers import connections, request_bytes, run
from common.memory import ProcessMemory
from common.options import create_parser
from common.serving import Server, serving
from common.tenants import ENVIRONMENT, create_tenant
from common.turns import percentile
from peltier_backbone.backbone import Backbone
from peltier_backbone.load import load_backbone
from peltier_client import AsyncClient, PeltierError

DEVICE_MIB, HOST_MIB = 192, 64
SHORT, LONG = "my card was stolen", " ".join([INPUTS[-1]] * 40)[:5000]
ONE_REQUEST = "one request"
# 380 texts of 60 words.
_LARGE_REQUEST = predict("plain", [" ".join((INPUTS[-1].split() * 3)[:60])] * 380)
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
                seen.failures[str(error).split(" ", 2)[1]] += 1
            await asyncio.sleep(_PAUSE_SECONDS)
    return seen


async def watch_both(url: str, requests: Sequence[bytes], seconds: float) -> list[VictimAnswers]:
    """Runs each request with its own caller for `seconds`."""
    end = time.monotonic() + seconds
    return list(await asyncio.gather(*(watch(url, request, lambda: time.monotonic() > end) for request in requests)))


async def watch_beside(url: str, requests: Sequence[bytes], large: bytes) -> list[VictimAnswers]:
    """Runs each request with its own caller until the one `large` request is answered."""
    async with connections(url, 1) as (connection,):
        answer = connection.ask(large)
        seen = await asyncio.gather(*(watch(url, request, answer.done) for request in requests))
        await answer
    return list(seen)


class Publisher:
    """Publishes the adapters that the attacks need."""

    def __init__(self, backbone: Backbone, client: AsyncClient) -> None:
        self._backbone = backbone
        self._client = client

    async def publish(self, kinds: Collection[str]) -> None:
        """Publishes the adapters of `kinds`."""
        making = {
            "plain": self._publish_plain,
            "prefix": self._publish_prefix,
            "labels": self._publish_labels,
            "costly": self._publish_costly,
            "hogs": self._publish_hogs,
        }
        for kind in sorted(kinds):
            await making[kind]()

    async def _publish_plain(self) -> None:
        await self._client.upload(make_bytes(self._backbone, "compacter", 1), name="plain")

    async def _publish_prefix(self) -> None:
        await self._client.upload(make_bytes(self._backbone, "prefix", 2, length=512), name="prefix")

    async def _publish_hogs(self) -> None:
        for number in range(NUM_HOGS):
            data = make_bytes(self._backbone, "houlsby", number, bottleneck=240)
            await self._client.upload(data, name=f"hog-{number}")

    async def _publish_labels(self) -> None:
        for count, length in _LABELS:
            labels = [f"{number:04}".ljust(length, "x") for number in range(count)]
            data = make_bytes(self._backbone, "bitfit", 3, task=make_task(self._backbone, labels))
            if not await self._refused("labels", data, f"{count} labels of {length} characters"):
                for number in range(NUM_LISTED):
                    await self._client.upload(data, name=f"listed-{number}")
                return

    async def _publish_costly(self) -> None:
        for preset, settings in _COSTLY:
            data = make_bytes(self._backbone, preset, 0, **settings)
            if not await self._refused("costly-0", data, f"{preset} {dict(settings)}"):
                for number in range(1, NUM_COSTLY):
                    data = make_bytes(self._backbone, preset, number, **settings)
                    await self._client.upload(data, name=f"costly-{number}")
                return

    async def _refused(self, name: str, data: bytes, what: str) -> bool:
        try:
            await self._client.upload(data, name=name)
        except PeltierError as error:
            print(f"refused: {what}: {str(error)[:200]}")
            return True
        print(f"accepted: {what}, {len(data) / 2**20:.1f} MiB")
        return False


@contextmanager
def attacking(names: Sequence[str], url: str, key: str) -> Iterator[Counter[str]]:
    """Runs the attacks during the block; afterwards the value has the statuses that they read."""
    script = Path(__file__).with_name("attacks.py")
    statuses: Counter[str] = Counter()
    running = [
        subprocess.Popen([sys.executable, str(script), name, "--url", url, "--key", key], stdout=subprocess.PIPE)
        for name in names
    ]
    try:
        for process in running:
            assert process.stdout is not None
            process.stdout.readline()
        time.sleep(_WARM_SECONDS)
        yield statuses
    finally:
        for process in running:
            process.send_signal(signal.SIGTERM)
        for process in running:
            out, _ = process.communicate(timeout=60)
            statuses.update(json.loads(out or "{}"))


@dataclass(frozen=True)
class AttackedServer:
    """A server, the victim's two requests, and the attacker's key."""

    server: Server
    requests: tuple[bytes, bytes]
    key: str
    seconds: float

    def show(self, names: Sequence[str], what: str) -> None:
        """Prints a line for the victim's short texts and one for its long ones."""
        memory = ProcessMemory(self.server.process.pid)
        alone = run(watch_both(self.server.url, self.requests, self.seconds / 2))
        memory.forget()
        beside, statuses = self._attack(names)
        peak = memory.peak_mib
        for text, before, after in zip(("short", "5 KB"), alone, beside, strict=True):
            p99, own = after.percentile_ms(99), before.percentile_ms(99)
            shown = (before.percentile_ms(50), own, after.percentile_ms(50), p99, after.percentile_ms(100))
            numbers = "".join(f"{number:8.0f}" for number in shown)
            lost = " ".join(f"{code}:{count}" for code, count in (before.failures + after.failures).items()) or "-"
            read = " ".join(f"{code}:{count}" for code, count in sorted(statuses.items()))
            print(f"{what:<14}{text:<6}{numbers}{p99 / own:7.1f}  {lost:<8}{peak:7.0f}  {read}", flush=True)
        run(self._wait_until_calm(alone[0].percentile_ms(50)))

    def _attack(self, names: Sequence[str]) -> tuple[list[VictimAnswers], Mapping[str, int]]:
        """What the victim saw beside the attacks, and the statuses that the attacker read."""
        if ONE_REQUEST in names:
            large = _LARGE_REQUEST(self.key)
            return run(watch_beside(self.server.url, self.requests, large)), {"200": 1}
        with attacking(names, self.server.url, self.key) as statuses:
            beside = run(watch_both(self.server.url, self.requests, self.seconds))
        return beside, statuses

    async def _wait_until_calm(self, usual_ms: float) -> None:
        """Waits until the victim's answers are as fast as usual, because the attack's requests have ended."""
        end = time.monotonic() + _CALM_SECONDS
        while time.monotonic() < end:
            (seen,) = await watch_both(self.server.url, self.requests[:1], 1)
            if seen.percentile_ms(100) < 2 * usual_ms:
                return


async def settle_in(url: str, backbone: Backbone, kinds: Collection[str]) -> tuple[str, str]:
    """Creates the keys of the victim and of the attacker, and publishes the attacker's adapters of `kinds`."""
    keys = [await create_tenant(url, tenant) for tenant in ("victim", "attacker")]
    async with AsyncClient(url, keys[0], timeout=300) as victim:
        await victim.upload(make_bytes(backbone, "compacter", 0), name="demo")
    async with AsyncClient(url, keys[1], timeout=300) as attacker:
        await Publisher(backbone, attacker).publish(kinds)
    return keys[0], keys[1]


def _adapters_of(name: str) -> Sequence[str]:
    return ("plain",) if name == ONE_REQUEST else ATTACKS[name].adapters


def main() -> None:
    parser = create_parser(__doc__)
    parser.add_argument("--seconds", type=float, default=20.0, help="of each attack")
    parser.add_argument("--attack", choices=[*ATTACKS, ONE_REQUEST], action="append", help="these alone")
    given = parser.parse_args()
    backbone = load_backbone("minilm")
    budgets = ("--device-bytes", str(DEVICE_MIB * 2**20), "--host-bytes", str(HOST_MIB * 2**20))
    with (
        tempfile.TemporaryDirectory() as directory,
        serving(Path(directory) / "store", *budgets, environment=ENVIRONMENT) as server,
    ):
        empty = ProcessMemory(server.process.pid).now_mib
        names = given.attack or [*ATTACKS, ONE_REQUEST]
        kinds = {kind for name in names for kind in _adapters_of(name)}
        victim, attacker = asyncio.run(settle_in(server.url, backbone, kinds))
        path = "/v1/tasks/demo/predict"
        requests = (request_bytes(path, {"inputs": SHORT}, victim), request_bytes(path, {"inputs": LONG}, victim))
        stage = AttackedServer(server, requests, attacker, given.seconds)
        print(f"budgets: device {DEVICE_MIB} MiB, host {HOST_MIB} MiB; the process at its start: {empty:.0f} MiB")
        heads = f"{'p50':>8}{'p99':>8}{'p50':>8}{'p99':>8}{'max':>8}{'times':>7}"
        print(f"{'attack':<14}{'text':<6}{heads}  {'failed':<8}{'MiB':>7}  the attacker read", flush=True)
        for name in names:
            stage.show([name], name)
        if given.attack is None:
            stage.show([name for name in ATTACKS if name != "nobody"], "all at once")


if __name__ == "__main__":
    main()
