"""Kills, restarts and checked answers over hours: are acknowledged changes lost, answers wrong, or does memory grow?

    nice -n 15 .venv/bin/python -m tests.crash.endurance --minutes 30

Five replicas share one store with a small random BERT. Publishers upload, delete, undelete and point aliases, and
operators set quotas, and create and revoke keys, through all replicas. In each round all replicas but the first are
killed by SIGKILL in the middle of these changes, one after the other, or in one round of ten stopped by SIGTERM, and
are started again. Then every acknowledged change must be there, and a change without an answer wholly or not at all
(tests/crash). The first replica runs all the time, and its memory is read once a second.

Callers send batches of texts to all replicas meanwhile, for adapters that stay and versions that come and go. The
device has room for a sixth of the adapters and the host for a third, so loads evict others. Each answer is compared
with that of the stated version to the same text alone, which this program has computed before. Where the kernels
promise answers that are equal to the last bit, every other score is wrong, and else one that differs from s by more
than 1e-5 x max(1, |s|).

The piece adds a line to endurance.jsonl, also if it ends with a fault. --sum prints the sum of all pieces.
"""

import asyncio
import json
import math
import os
import random
import statistics
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from signal import SIGKILL, SIGTERM

import httpx2
import torch
from peltier_adapters.artifact.artifact import Artifact, read_artifact
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.inputs import encode_input
from peltier_adapters.residency.bank import Banks
from peltier_backbone.backbone import Backbone
from peltier_backbone.load import EXACT, load_backbone
from peltier_store.blobs.blobs import Blobs
from peltier_store.location import StoreLocation
from peltier_store.registry.extensions.registry import Registry
from peltier_store.verification import verify_store
from transformers import BertConfig, BertModel

from benchmarks.common.adapters import make_bytes, make_task
from benchmarks.common.committed import processor
from benchmarks.common.harness import create_parser
from benchmarks.common.memory import ProcessMemory
from tests.crash.callers import Operator, Publisher, Specimen, Tally
from tests.support.server_process import Server
from tests.support.small_tokenizers import TEXTS, word_piece

RECORD = Path(__file__).with_suffix(".jsonl")
PRESETS = ("compacter", "lora", "adamix", "unipelt-apl", "pfeiffer", "bitfit")
NUM_STAYING, NUM_CHANGING = 40, 24
NUM_REPLICAS, NUM_PUBLISHERS, NUM_OPERATORS, NUM_CALLERS = 5, 8, 4, 4
MAX_CHANGES = 24
STEADY_CHANGES = 6  # of each that works on the replica that runs all the time
SIZES = (1, 16, 64, 128)
ROUNDING = 1e-5
STOP_EVERY = 10
ADMIN_KEY = "endurance-admin-key-of-one-run"
Scores = torch.Tensor  # [texts, labels]


@dataclass(frozen=True)
class Shelf:
    """The adapters that stay, by name, and those that publishers use; the texts, and by digest the scores alone."""

    staying: Mapping[str, Specimen]
    changing: Sequence[Specimen]
    texts: Sequence[str]
    alone: Mapping[str, Scores]
    tolerance: float
    num_bytes: int


@dataclass
class Answers:
    """How requests of one caller ended; answers are counted by row."""

    right: int = 0
    largest_difference: float = 0.0
    wrong: list[str] = field(default_factory=list)
    others: Counter[str] = field(default_factory=Counter)


def save_backbone(directory: Path) -> Backbone:
    """A random BERT with 3 layers of width 48 whose weights all matter."""
    tokenizer = word_piece()
    sizes = {"num_hidden_layers": 3, "hidden_size": 48, "num_attention_heads": 4, "intermediate_size": 88}
    model = BertModel(BertConfig(vocab_size=tokenizer.get_vocab_size(), max_position_embeddings=96, **sizes))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.randn(weight.shape, generator=generator), alpha=0.15)
    model.save_pretrained(directory)
    tokenizer.save(str(directory / "tokenizer.json"))
    return load_backbone(str(directory))


def make_shelf(backbone: Backbone) -> Shelf:
    """Artifacts with different answers, and all their answers to all texts."""
    draw = random.Random(0)
    words = " ".join(TEXTS).split()
    texts = [" ".join(draw.choices(words, k=draw.randint(1, 60))) for _ in range(64)]
    task = make_task(backbone, max_length=64)
    number = NUM_STAYING + NUM_CHANGING
    made = [make_bytes(backbone, PRESETS[n % len(PRESETS)], n, task=task, noise=0.3) for n in range(number)]
    parsed = [read_artifact(data, backbone) for data in made]
    specimens = [Specimen(data, one.digest, one.manifest.golden[1]) for data, one in zip(made, parsed, strict=True)]
    staying = {f"staying-{number}": specimen for number, specimen in enumerate(specimens[:NUM_STAYING])}
    alone = {artifact.digest: scores_alone(backbone, artifact, texts) for artifact in parsed}
    num_bytes = sum(tensor.nbytes for artifact in parsed for tensor in artifact.tensors.values())
    tolerance = 0.0 if backbone.kernels["answers"] == EXACT else ROUNDING
    return Shelf(staying, specimens[NUM_STAYING:], texts, alone, tolerance, num_bytes)


def scores_alone(backbone: Backbone, artifact: Artifact, texts: Sequence[str]) -> Scores:
    """The raw scores of each text in a batch of its own."""
    resident = Banks(backbone).add(artifact)
    rows = [Row(encode_input(backbone, resident.task, text), resident) for text in texts]
    return torch.stack([forward(backbone, [row])[0].logits.flatten() for row in rows])


class EnduranceCaller:
    """Sends batches to any replica and compares the answers, until the piece ends."""

    def __init__(self, shelf: Shelf, replicas: Sequence[Server], publishers: Sequence[Publisher], seed: int) -> None:
        self.answers = Answers()
        self._shelf, self._replicas, self._publishers = shelf, replicas, publishers
        self._draw = random.Random(seed)
        self._client = httpx2.Client(timeout=120, headers={"authorization": f"Bearer {ADMIN_KEY}"})

    def ask_until(self, end: threading.Event) -> None:
        while not end.is_set():
            replica = self._draw.choice(self._replicas)
            staying = self._draw.random() < 0.6
            publisher = self._draw.choice(self._publishers)
            name = self._draw.choice(list(self._shelf.staying)) if staying else publisher.name
            places = self._draw.choices(range(len(self._shelf.texts)), k=self._draw.choice(SIZES))
            inputs = [self._shelf.texts[place] for place in places]
            body = {"inputs": inputs, "parameters": {"raw_scores": True}}
            try:
                answer = self._client.post(f"{replica.url}/v1/tasks/{name}/predict", json=body)
            except httpx2.TransportError:
                self.answers.others["broken"] += 1
                time.sleep(0.2)
                continue
            if answer.status_code == 200:
                self._compare(name, None if staying else publisher, places, answer.json())
            elif answer.status_code in (503, 504) or (answer.status_code == 404 and not staying):
                self.answers.others[str(answer.status_code)] += 1
            else:
                self.answers.wrong.append(f"{name}: {answer.status_code} {answer.text[:300]}")

    def _compare(self, name: str, publisher: Publisher | None, places: Sequence[int], answer: dict) -> None:
        number = answer["adapter"]["version"]
        digest = self._shelf.staying[name].digest if publisher is None else publisher.digests().get(number)
        if digest is None:  # an upload without an answer, which the publisher does not know yet
            self.answers.others["unknown version"] += 1
            return
        found = torch.tensor([list(one["scores"].values()) for one in answer["predictions"]])
        expected = self._shelf.alone[digest][list(places)]
        assert found.shape == expected.shape, (name, found.shape, expected.shape)
        differences = (found - expected).abs() / expected.abs().clamp(min=1.0)
        self.answers.largest_difference = max(self.answers.largest_difference, float(differences.max()))
        num_wrong = int((~(differences <= self._shelf.tolerance)).any(dim=1).sum())
        self.answers.right += len(places) - num_wrong
        if num_wrong:
            self.answers.wrong.append(f"{name}@{number}: {num_wrong} of {len(places)}, {float(differences.max()):.1e}")


class Piece:
    """The replicas of one piece, and who changes them."""

    def __init__(self, backbone: Path, shelf: Shelf, directory: Path, seed: int) -> None:
        self.rounds = self.kills = self.stops = 0
        self.memory_mib: list[float] = []
        self._directory, self._draw = directory, random.Random(seed)
        room = ["--device-bytes", str(shelf.num_bytes // 6), "--host-bytes", str(shelf.num_bytes // 3)]
        self._flags = ["--backbone", str(backbone), "--store", str(directory / "store"), *room]
        self._flags += ["--lame-duck-seconds", "0"]
        self.replicas = self._start([0])
        for name, specimen in shelf.staying.items():
            files, data = {"file": specimen.data}, {"name": name}
            self.replicas[0].client.post("/v1/adapters", files=files, data=data).raise_for_status()
        self.replicas += self._start(range(1, NUM_REPLICAS))
        client = self.replicas[0].client
        self.publishers = [Publisher(f"a-{n}", shelf.changing, seed=seed + n) for n in range(NUM_PUBLISHERS)]
        self.operators = [Operator(client, f"t-{n}", seed=seed + n) for n in range(NUM_OPERATORS)]
        self._changing: list[Publisher | Operator] = [*self.publishers, *self.operators]

    def round(self) -> None:
        """A burst of changes in which replicas are killed or stopped; new ones; and all that must hold then."""
        self.rounds += 1
        sign = SIGKILL if self.rounds % STOP_EVERY else SIGTERM
        last = self._acknowledged() + self._draw.randint(1, MAX_CHANGES)
        places = [number % NUM_REPLICAS for number in range(len(self._changing))]
        self._draw.shuffle(places)
        with ThreadPoolExecutor(len(self._changing)) as pool:
            at_work = [
                pool.submit(
                    one.work, self.replicas[place].client, math.inf if place else STEADY_CHANGES, outage=sign is SIGTERM
                )
                for one, place in zip(self._changing, places, strict=True)
            ]
            while self._acknowledged() < last and not all(work.done() for work in at_work):
                time.sleep(0.002)
            for replica in self.replicas[1:]:
                time.sleep(self._draw.random() / 10)
                replica.process.send_signal(sign)
            for replica in self.replicas[1:]:
                status = replica.process.wait()
                assert status == (0 if sign is SIGTERM else -sign), (status, replica.log[-2000:])
        for work in at_work:
            work.result()
        self.kills += (NUM_REPLICAS - 1) * (sign is SIGKILL)
        self.stops += (NUM_REPLICAS - 1) * (sign is SIGTERM)
        self._restart()
        self.check()
        print(f"round {self.rounds}: {self.tally()}", flush=True)

    def check(self) -> None:
        """Every change is there, on a replica drawn for each who made changes."""
        # A write makes its replica read all that was committed before it.
        self.replicas[0].client.put("/v1/tenants/default", json={}).raise_for_status()
        with ThreadPoolExecutor(3) as pool:
            checks = [pool.submit(one.check, self._draw.choice(self.replicas).client) for one in self._changing]
        for check in checks:
            check.result()

    def watch_memory(self, end: threading.Event) -> None:
        """Reads the memory of the replica that runs all the time."""
        memory = ProcessMemory(self.replicas[0].process.pid)
        while not end.wait(1):
            self.memory_mib.append(memory.now_mib)

    def tally(self) -> Tally:
        total = Tally()
        for one in self._changing:
            total.add(one.tally)
        return total

    async def problems(self) -> list[str]:
        """What `peltier store verify` finds, after every replica has ended."""
        location = StoreLocation.of(self._directory / "store")
        registry = await Registry.open(location.registry)
        try:
            return [str(one) for one in (await verify_store(registry, Blobs.open(location.blobs))).problems]
        finally:
            await registry.close()

    def end(self) -> None:
        for replica in self.replicas:
            replica.end()

    def _acknowledged(self) -> int:
        return sum(one.tally.acknowledged for one in self._changing)

    def _restart(self) -> None:
        for replica in self.replicas[1:]:
            replica.end()
        self.replicas[1:] = self._start(range(1, NUM_REPLICAS))

    def _start(self, numbers: Sequence[int]) -> list[Server]:
        logs = [self._directory / f"log-{number}" for number in numbers]
        servers = [Server(log, *self._flags, PELTIER_ADMIN_KEY=ADMIN_KEY) for log in logs]
        for server in servers:
            server.wait_until_ready().client.headers["authorization"] = f"Bearer {ADMIN_KEY}"
        return servers


def run(minutes: float, seed: int, directory: Path) -> dict[str, object]:
    """One piece, as a line of the record."""
    backbone = save_backbone(directory / "backbone")
    shelf = make_shelf(backbone)
    began, faults = time.monotonic(), []
    piece = Piece(directory / "backbone", shelf, directory, seed)
    callers = [EnduranceCaller(shelf, piece.replicas, piece.publishers, seed + n) for n in range(NUM_CALLERS)]
    end = threading.Event()
    try:
        with ThreadPoolExecutor(NUM_CALLERS + 1) as pool:
            running = [pool.submit(caller.ask_until, end) for caller in callers]
            running.append(pool.submit(piece.watch_memory, end))
            try:
                while time.monotonic() < began + 60 * minutes and not any(caller.answers.wrong for caller in callers):
                    piece.round()
            except (AssertionError, httpx2.HTTPError) as error:
                faults.append(repr(error))
            finally:
                end.set()
        for one in running:
            one.result()
    finally:
        piece.end()
    faults += asyncio.run(piece.problems())
    wrong = [line for caller in callers for line in caller.answers.wrong]
    tenth = max(len(piece.memory_mib) // 10, 1)
    return {
        "ended": datetime.now(UTC).isoformat(timespec="seconds"),
        "processor": processor()[1],
        "level": backbone.kernels["level"],
        "seed": seed,
        "minutes": round((time.monotonic() - began) / 60, 1),
        "kills": piece.kills,
        "stops": piece.stops,
        **vars(piece.tally()),
        "lost": len(faults),
        "answers": sum(caller.answers.right for caller in callers),
        "wrong": len(wrong),
        "largest_difference": max(caller.answers.largest_difference for caller in callers),
        "others": dict(sum((caller.answers.others for caller in callers), Counter())),
        "memory_mib": [
            round(statistics.median(piece.memory_mib[at : at + tenth]), 1)
            for at in range(0, 10 * tenth, tenth)
            if piece.memory_mib[at:]
        ],
        "faults": (faults + wrong)[:10],
    }


def print_sum() -> None:
    """The sum of all pieces."""
    pieces = [json.loads(line) for line in RECORD.read_text().splitlines()] if RECORD.exists() else []
    names = ("minutes", "kills", "stops", "acknowledged", "in_doubt", "in_doubt_applied", "versions_checked", "lost")
    for name in (*names, "answers", "wrong"):
        print(f"{name:20}{sum(piece[name] for piece in pieces):12g}")
    print(f"{'largest_difference':20}{max(piece['largest_difference'] for piece in pieces):12.1e}")
    for piece in pieces:
        later = piece["memory_mib"][1:] or piece["memory_mib"]
        spread = max(abs(one / statistics.mean(later) - 1) for one in later)
        print(f"{piece['ended']}  memory {later[0]} to {later[-1]} MiB, within {spread:.1%} of its mean")


def main() -> None:
    parser = create_parser(__doc__)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--sum", action="store_true")
    asked = parser.parse_args()
    if not asked.sum:
        os.environ.setdefault("OMP_NUM_THREADS", "1")
        torch.set_num_threads(1)
        with tempfile.TemporaryDirectory() as directory:
            piece = run(asked.minutes, asked.seed, Path(directory))
        with RECORD.open("a") as record:
            record.write(json.dumps(piece) + "\n")
        print(json.dumps(piece, indent=1))
    print_sum()


if __name__ == "__main__":
    main()
