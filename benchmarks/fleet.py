"""A fleet of replicas with PostgreSQL, S3 and HAProxy: throughput against replicas, and what faults cost.

    nice .venv/bin/python benchmarks/fleet.py [--replicas 1 2 4] [--faulty 2] [--seconds 10] [--json runs/fleet.json]

It needs `haproxy` and PostgreSQL (Debian: apt-get install haproxy postgresql) and uses deploy/haproxy.cfg.

**Throughput.** For each of `--replicas`, callers send single sentences for `--tasks` tasks by a power law, each as soon
as it is answered. The table has the answers a CPU second of the replicas, the largest replica's share of the CPU time,
and the copies of an adapter: the adapters on the devices of all replicas, by the tasks that were asked for. Then
requests arrive by a Poisson process, and the latencies are from the arrival to the answer.

**Faults.** While callers predict and others publish, each of `--faulty` replicas in turn is killed and started, cut off
from the balancer, cut off from the database and the bucket, restarted, and upgraded to a release whose schema has a
column and a table more, beside the old release. Afterwards the table has, for each kind of fault: requests, those that
failed although they began after it (there must be none, but for changes that a replica without a database refuses with
503), and those that were in flight. An answer is wrong if its scores are not the golden ones of the version that it
names, or if that version was never published. A change is lost if a replica does not have it in the end.
"""

import itertools
import random
import shutil
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import httpx2
import safetensors.torch
from common.adapters import INPUTS, make_bytes
from common.callers import ask_all, ask_at, ask_for, poisson, predict_bytes, run
from common.harness import Table, add_json, create_parser, percentile, write_json
from common.replicas import FleetReplica, SharedStore, balancing, next_release, shared_store
from common.sentences import load_sentences
from common.serving import Stocked, manifest_text, register, variant
from peltier_adapters.artifact.artifact import to_bytes
from peltier_adapters.artifact.manifest import TrainingRecord, read_header
from peltier_adapters.artifact.source import digest_of
from peltier_backbone.load import load_backbone
from peltier_store.blobs.blobs import Blobs
from torch import Tensor

PRESETS = ("compacter", "lora")
SMALL = {"compacter": {}, "lora": {"rank": 2}}
CALLERS, RATE, ALPHA = 8, 12.0, 1.0
NUM_GOLDEN, NUM_WRITERS, NUM_SENTENCES = 6, 2, 256
TOLERANCE = 1e-4  # that of golden examples in float32
FAULT_SECONDS = 3.0
# Two checks of the balancer, and the time within which a replica follows the registry.
SETTLE_SECONDS = 1.5


@dataclass(frozen=True)
class FleetThroughput:
    """What a number of replicas answered; `one_by_one` is the CPU seconds of a request of a single caller, and
    `lone_latencies` are the times of its answers."""

    replicas: int
    tasks: int
    requests: int
    cpu_seconds: float
    largest_share: float
    copies: float
    one_by_one: float
    lone_latencies: list[float]
    latencies: list[float]

    @property
    def per_cpu_second(self) -> float:
        return self.requests / self.cpu_seconds


@dataclass
class Ledger:
    """What was published: the digest and the time of every acknowledged version, and digests whose upload failed."""

    golden: dict[str, list[tuple[float, ...]]]
    acknowledged: dict[tuple[str, int], tuple[str, float]] = field(default_factory=dict)
    doubtful: set[str] = field(default_factory=set)

    def is_right(self, answer: dict[str, object], number: int) -> bool:
        """Whether an answer to input `number` has the scores of a version that was published."""
        adapter = answer["adapter"]
        expected = self.golden.get(adapter["digest"])
        scores = [*answer["predictions"][0]["scores"].values()]
        return expected is not None and all(
            abs(one - two) <= TOLERANCE * max(1.0, abs(two)) for one, two in zip(scores, expected[number], strict=True)
        )


@dataclass
class CallLog:
    """The calls of all callers: their beginning, end and failure, if any, whether they changed something; and how many
    answers were wrong."""

    calls: list[tuple[float, float, str, bool]] = field(default_factory=list)
    num_wrong: int = 0


@dataclass(frozen=True)
class FleetTraffic:
    """Where callers send requests, when they end, and what they record."""

    url: str
    end: threading.Event
    ledger: Ledger
    log: CallLog


@dataclass(frozen=True)
class FaultReport:
    """The calls between one kind of fault and the next."""

    fault: str
    calls: int
    in_flight: int
    refused: int
    later: int
    reasons: list[str]


def stock_fleet(store: SharedStore, originals: dict[str, bytes], golden: Sequence[bytes], count: int) -> None:
    """Tasks for the throughput, all alike but for their digests, and tasks with different answers."""
    blobs = Blobs.open(store.blobs())
    named = [(f"task-{number:04}", number) for number in range(count)]
    files = [(name, PRESETS[number % 2], variant(originals[PRESETS[number % 2]], number)) for name, number in named]
    files += [(f"golden-{number}", read_header(data)[0].preset, data) for number, data in enumerate(golden)]
    run(_put_all(blobs, [data for _, _, data in files]))
    stocked = [
        Stocked(name, (digest_of(data),), len(data), preset, manifest_text(data)) for name, preset, data in files
    ]
    run(register(store.registry(), stocked))


async def _put_all(blobs: Blobs, files: Sequence[bytes]) -> None:
    for data in files:
        await blobs.put(data)


def measure_throughput(
    replicas: Sequence[FleetReplica], tasks: Sequence[str], seconds: float, log: Path
) -> FleetThroughput:
    """One number of replicas, with tasks that no replica has on its device yet."""
    draw, sentences = random.Random(len(replicas)), load_sentences(None, NUM_SENTENCES)
    weights = list(itertools.accumulate(rank**-ALPHA for rank in range(1, len(tasks) + 1)))
    asked = draw.choices(tasks, cum_weights=weights, k=2000)
    requests = [predict_bytes(task, draw.choice(sentences)) for task in asked]
    before = [one.residents() for one in replicas]
    with balancing(replicas, log) as url:
        run(ask_all(url, [predict_bytes(task, sentences[0]) for task in tasks], 1))
        used = [one.server.cpu_seconds for one in replicas]
        answers = run(ask_for(url, requests, CALLERS, seconds))
        spent = [one.server.cpu_seconds - then for one, then in zip(replicas, used, strict=True)]
        copies = sum(one.residents() for one in replicas) - sum(before)
        arrivals = [(moment, draw.choice(requests)) for moment in poisson(RATE, seconds, draw.expovariate)]
        latencies = run(ask_at(url, arrivals, 64))
        used = [one.server.cpu_seconds for one in replicas]
        alone = run(ask_for(url, requests, 1, seconds / 2))
        single = sum(one.server.cpu_seconds - then for one, then in zip(replicas, used, strict=True)) / len(alone)
        moments = [moment for moment, _ in alone]
    return FleetThroughput(
        len(replicas),
        len(tasks),
        len(answers),
        sum(spent),
        max(spent) / sum(spent),
        copies / len(tasks),
        single,
        [later - earlier for earlier, later in itertools.pairwise([0.0, *moments])],
        latencies,
    )


def predict_until(traffic: FleetTraffic, names: Sequence[str], seed: int) -> None:
    """Asks for golden inputs and checks each answer."""
    draw, log = random.Random(seed), traffic.log
    with httpx2.Client(base_url=traffic.url, timeout=60) as client:
        while not traffic.end.is_set():
            number, name = draw.randrange(len(INPUTS)), draw.choice(names)
            body = {"inputs": INPUTS[number], "parameters": {"raw_scores": True}}
            answer = _call(log, lambda name=name, body=body: client.post(f"/v1/tasks/{name}/predict", json=body), False)
            if answer is not None and not traffic.ledger.is_right(answer.json(), number):
                log.num_wrong += 1
            time.sleep(0.05)


def publish_until(traffic: FleetTraffic, name: str, original: bytes) -> None:
    """Publishes one version after another, and records which were acknowledged."""
    rows, ledger, log = [golden.output for golden in read_header(original)[0].golden], traffic.ledger, traffic.log
    tensors = safetensors.torch.load(original)
    with httpx2.Client(base_url=traffic.url, timeout=60) as client:
        for number in itertools.count():
            if traffic.end.is_set():
                return
            data = _numbered(original, tensors, number)
            digest = digest_of(data)
            ledger.golden[digest] = rows
            files, form = {"file": data}, {"name": name}
            answer = _call(
                log, lambda files=files, form=form: client.post("/v1/adapters", files=files, data=form), True
            )
            if answer is None:
                ledger.doubtful.add(digest)
            else:
                ledger.acknowledged[name, answer.json()["version"]] = digest, time.monotonic()
            time.sleep(0.2)


def _numbered(original: bytes, tensors: dict[str, Tensor], number: int) -> bytes:
    """The artifact with a number in its record, and the same weights and golden outputs."""
    manifest, _ = read_header(original)
    return to_bytes(manifest.model_copy(update={"training": TrainingRecord(data={"number": number})}), tensors)


def _call(log: CallLog, send: Callable[[], httpx2.Response], changes: bool) -> httpx2.Response | None:
    """The answer, or None for a failure; both are recorded."""
    begun, answer, failure = time.monotonic(), None, ""
    try:
        answer = send()
        failure = "" if answer.is_success else f"{answer.status_code} {answer.text[:120]}"
    except httpx2.HTTPError as error:
        failure = type(error).__name__
    log.calls.append((begun, time.monotonic(), failure, changes))
    return None if failure else answer


Moment = tuple[float, float]


def faults(replica: FleetReplica, release: str) -> dict[str, Callable[[], Moment]]:
    """Each kind of fault of a replica: a function that makes it, ends it, and returns the interval in which connections
    broke."""

    def killed() -> Moment:
        begun = time.monotonic()
        replica.kill()
        broken = begun, time.monotonic()
        replica.start()
        return broken

    def cut_from_balancer() -> Moment:
        begun = time.monotonic()
        with replica.partitioned(replica.front, mode="refused"):
            broken = begun, time.monotonic()
            time.sleep(FAULT_SECONDS)
        return broken

    def cut_from_store() -> Moment:
        begun = time.monotonic()
        with replica.partitioned(replica.database, replica.bucket, mode="cut"):
            broken = begun, time.monotonic()
            time.sleep(FAULT_SECONDS)
        return broken

    def restarted(path: str | None = None) -> Moment:
        begun = time.monotonic()
        replica.stop()
        replica.path = path
        replica.start()
        # Draining ends no call, so none that fails is excused.
        return begun, begun

    return {
        "killed": killed,
        "cut off from the balancer": cut_from_balancer,
        "cut off from database and bucket": cut_from_store,
        "restarted": restarted,
        "upgraded": lambda: restarted(release),
    }


@contextmanager
def calling(url: str, ledger: Ledger, originals: Sequence[bytes]) -> Iterator[CallLog]:
    """Callers that predict and publish while the block runs."""
    traffic = FleetTraffic(url, threading.Event(), ledger, CallLog())
    names = [f"golden-{number}" for number in range(NUM_GOLDEN)]
    with ThreadPoolExecutor() as pool:
        work = [pool.submit(predict_until, traffic, names, seed) for seed in range(4)]
        work += [
            pool.submit(publish_until, traffic, f"live-{number}", originals[number]) for number in range(NUM_WRITERS)
        ]
        try:
            yield traffic.log
        finally:
            traffic.end.set()
        for one in work:
            one.result()


def measure_faults(
    replicas: Sequence[FleetReplica], ledger: Ledger, originals: Sequence[bytes], output: Path
) -> list[FaultReport]:
    """Each kind of fault for each replica, one at a time."""
    reports = []
    with next_release() as release, balancing(replicas, output) as url, calling(url, ledger, originals) as log:
        time.sleep(SETTLE_SECONDS)
        for kind in faults(replicas[0], release):
            first, moments = len(log.calls), []
            for replica in replicas:
                moments.append(faults(replica, release)[kind]())
                time.sleep(SETTLE_SECONDS)
            reports.append(_report(kind, log.calls[first:], moments))
            print(f"{kind}: {reports[-1].calls} calls", flush=True)
        time.sleep(SETTLE_SECONDS)
    assert log.num_wrong == 0, f"{log.num_wrong} answers are wrong"
    return reports


def _report(kind: str, calls: Sequence[tuple[float, float, str, bool]], moments: Sequence[Moment]) -> FaultReport:
    failed = [call for call in calls if call[2]]
    in_flight = [call for call in failed if any(call[0] <= end and begun <= call[1] for begun, end in moments)]
    rest = [call for call in failed if call not in in_flight]
    # A replica without its database refuses changes with 503, and says so.
    refused = [call for call in rest if call[3] and call[2].startswith("503")]
    later = [call for call in rest if call not in refused]
    reasons = Counter(call[2] for call in failed)
    told = [f"{times} x {reason}" for reason, times in reasons.most_common(4)]
    return FaultReport(kind, len(calls), len(in_flight), len(refused), len(later), told)


def count_lost(replicas: Sequence[FleetReplica], ledger: Ledger) -> int:
    """Acknowledged versions that some replica does not have, with the bytes that were published. No version may be
    there that nobody published."""
    lost = 0
    time.sleep(SETTLE_SECONDS)
    for replica in replicas:
        with httpx2.Client(base_url=replica.url, timeout=60) as client:
            for name in {name for name, _ in ledger.acknowledged}:
                listed = client.get(f"/v1/adapters/{name}/versions", params={"limit": 1000}).raise_for_status().json()
                there = {one["version"]: one["digest"] for one in listed["versions"]}
                wanted = {n: digest for (other, n), (digest, _) in ledger.acknowledged.items() if other == name}
                lost += sum(there.get(number) != digest for number, digest in wanted.items())
                assert {there[n] for n in there.keys() - wanted.keys()} <= ledger.doubtful, "an unknown version"
                newest = max(wanted)
                data = client.get(f"/v1/adapters/{name}/versions/{newest}/artifact").raise_for_status().content
                lost += digest_of(data) != wanted[newest]
    return lost


def report_throughput(found: Sequence[FleetThroughput]) -> None:
    """One line for each number of replicas."""
    table = Table("replicas", "requests", "a CPU second", "x first", "largest", "copies", "p50 ms", "p99 ms", first=10)
    for one in found:
        times = [f"{1000 * percentile(one.latencies, percent):.0f}" for percent in (50, 99)]
        ratio = one.per_cpu_second / found[0].per_cpu_second
        cells = f"{one.per_cpu_second:.1f}", f"{ratio:.2f}", f"{one.largest_share:.2f}", f"{one.copies:.2f}"
        table.row(one.replicas, one.requests, *cells, *times)
    single = statistics.median(one.one_by_one for one in found)
    print(f"a request of a single caller takes {1000 * single:.1f} ms of CPU", flush=True)


def report_faults(found: Sequence[FaultReport], ledger: Ledger, lost: int) -> None:
    """One line for each kind of fault."""
    table = Table("fault", "calls", "in flight", "refused", "later", first=34)
    for one in found:
        table.row(one.fault, one.calls, one.in_flight, one.refused, one.later)
        for reason in one.reasons:
            print(f"    {reason}")
    print(f"0 answers are wrong, {lost} of {len(ledger.acknowledged)} acknowledged changes are lost", flush=True)


def main() -> None:
    parser = create_parser(__doc__, replicas=(1, 2, 4), faulty=2, tasks=32, seconds=10.0, logs="")
    add_json(parser, "the figures")
    asked = parser.parse_args()
    assert shutil.which("haproxy"), "haproxy is not installed"
    backbone = load_backbone("minilm")
    originals = {preset: make_bytes(backbone, preset, 0, **SMALL[preset]) for preset in PRESETS}
    golden = [make_bytes(backbone, PRESETS[n % 2], n + 1, **SMALL[PRESETS[n % 2]]) for n in range(NUM_GOLDEN)]
    outputs = {digest_of(data): [one.output for one in read_header(data)[0].golden] for data in golden}
    ledger = Ledger(outputs)
    with shared_store() as store, ExitStack() as stack:
        stock_fleet(store, originals, golden, asked.tasks * len(asked.replicas))
        logs = Path(asked.logs or stack.enter_context(tempfile.TemporaryDirectory()))
        count = max(*asked.replicas, asked.faulty)
        fleet = [FleetReplica(store, logs / f"replica-{number}.log", stack) for number in range(count)]
        for replica in fleet:
            replica.launch()
        for replica in fleet:
            replica.wait()
        found = []
        for place, count in enumerate(asked.replicas):
            tasks = [f"task-{number:04}" for number in range(place * asked.tasks, (place + 1) * asked.tasks)]
            found.append(measure_throughput(fleet[:count], tasks, asked.seconds, logs / "haproxy.log"))
        report_throughput(found)
        for replica in fleet[asked.faulty :]:
            replica.kill()
        faulty = fleet[: asked.faulty]
        reports = measure_faults(faulty, ledger, golden[-NUM_WRITERS:], logs / "haproxy.log") if faulty else []
        lost = count_lost(faulty, ledger)
        report_faults(reports, ledger, lost)
    own = {"callers": CALLERS, "alpha": ALPHA, "rate": RATE, "lost": lost, "changes": len(ledger.acknowledged)}
    measured = {"throughput": [asdict(one) for one in found], "faults": [asdict(one) for one in reports]}
    write_json(asked, measured | own)
    assert lost == 0, f"{lost} acknowledged changes are lost"
    assert not sum(one.later for one in reports), "requests failed that were not in flight"


if __name__ == "__main__":
    main()
