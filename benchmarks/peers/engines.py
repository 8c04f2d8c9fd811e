"""Peltier against the engines that serve a plain encoder on a CPU, such as onnxruntime, OpenVINO and CTranslate2.

    .venv/bin/python benchmarks/peers/engines.py [--data SST2/validation.jsonl.gz] [--level avx2] [--threads 2]
        [--rounds 8] [--tenants] [--json FILE]

Each engine has the same frozen MiniLM in its own process, as its documentation recommends, and computes the hidden
states of token ids. Peltier does the same (bare), and answers with 32 adapters of four presets. Engines take turns
within a run; ratios compare with plain transformers in float32 just before. Times are CPU seconds of the computing
process on one thread, and seconds by the clock on several.

`random` is sentences of SST-2's lengths in random batches of 32, `sorted` the same sentences sorted by length. `32 x
64` and `32 x 16` need no padding. `single` is one row alone. With `--tenants` there are 32 rows of 32 tenants: 32
models in an engine, 32 adapters in Peltier; this needs up to 8 GB of memory, and engines that compile are left out.
`cosine` compares each token's hidden state with that of plain transformers.

`--level` holds every process to an instruction level, also plain transformers, and leaves out engines that cannot be
held to it. Engines in bfloat16 are left out where the processor only emulates it. An engine that fails is left out of
the cases that follow. If the run is interrupted, it reports what it has measured.
"""

import argparse
import json
import os
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from contender import COMPILED, Contender, Engine
from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_backbone.load import DTYPES, load_backbone

sys.path.insert(0, str(Path(__file__).parents[1]))
from common.adapters import make_bytes
from common.committed import processor
from common.forced import add_level, multiplies_bfloat16, own_level
from common.harness import Table, add_data, add_json, create_parser, median, write_json
from common.sentences import load_sentences

ROWS, CALIBRATION = 32, 200
PRESETS = ("compacter", "unipelt-apl", "lora", "adamix")
WORKLOADS = ("random", "sorted", "32 x 64", "32 x 16", "single")
CASES = (*WORKLOADS, "tenants")
PLAIN = Engine("engine", "transformers", "float32")
FOREIGN = [
    Engine("engine", library, precision, library)
    for library, precisions in {
        "onnxruntime": ("float32", "int8"),
        "openvino": ("float32", "bfloat16", "int8"),
        "onnxruntime-openvino": ("float32",),
        "ctranslate2": ("float32", "int8"),
        "torchao": ("int8",),
        "zentorch": ("float32", "bfloat16"),
    }.items()
    for precision in precisions
]
# They choose instructions by the processor alone; OpenVINO does so for its float32 products and its norms.
NOT_HELD = {"onnxruntime", "onnxruntime-openvino", "openvino"}
PELTIER = [Engine("engine", "peltier", dtype, flags=flags) for dtype in DTYPES for flags in ((), ("--adapters",))]


@dataclass
class EngineResult:
    """The figures of one engine: ratios to plain transformers by case and round, the cosine of each token, the CPU
    milliseconds and MiB of one more tenant, and the reason if it was left out."""

    ratios: dict[str, list[float]] = field(default_factory=dict)
    cosines: list[float] = field(default_factory=list)
    load_ms: float | None = None
    load_mib: float | None = None
    left_out: str | None = None

    def cells(self) -> list[str]:
        """Its line in the table."""
        middles = (median(self.ratios.get(case)) for case in CASES)
        cosine = f"{statistics.mean(self.cosines):.4f} / {min(self.cosines):.3f}" if self.cosines else ""
        return [*middles, *("" if one is None else f"{one:.1f}" for one in (self.load_ms, self.load_mib)), cosine]


def write_work(folder: Path, data: Path | None, num_sentences: int) -> None:
    """The rows of every workload, as token ids, and an adapter of each preset."""
    backbone = load_backbone("minilm")
    texts = load_sentences(data, num_sentences + CALIBRATION)
    rows = [list(backbone.tokenizer.encode(text, max_tokens=128).ids) for text in texts]
    measured, calibration = rows[:num_sentences], rows[num_sentences:]
    batches = {
        "random": in_batches(measured),
        "sorted": in_batches(sorted(measured, key=len)),
        "32 x 64": [even_batch(64)],
        "32 x 16": [even_batch(16), even_batch(16)],
        "single": [[row] for row in measured[:ROWS]],
    }
    (folder / "work.json").write_text(json.dumps({"batches": batches, "tenants": measured[:ROWS]}))
    (folder / "calibration.json").write_text(json.dumps(calibration))
    for preset in PRESETS:
        (folder / f"{preset}.safetensors").write_bytes(make_bytes(backbone, preset, 0))


def in_batches(rows: list[list[int]]) -> list[list[list[int]]]:
    return [rows[first : first + ROWS] for first in range(0, len(rows), ROWS)]


def even_batch(width: int) -> list[list[int]]:
    """Rows of one length, of random tokens."""
    draw = random.Random(width)
    return [[draw.randrange(1000, 20_000) for _ in range(width)] for _ in range(ROWS)]


class Race:
    """Engines that take turns with plain transformers. One that fails leaves the race, and the others go on."""

    def __init__(self, options: argparse.Namespace, folder: Path, found: dict[Engine, EngineResult]) -> None:
        self._options, self._folder, self._found = options, folder, found
        self._checkpoint = find_checkpoint("minilm")
        self._started = time.monotonic()

    def run(self) -> None:
        """All engines at a time, in each workload."""
        with ExitStack() as running:
            plain = running.enter_context(self._start(PLAIN))
            others: dict[Engine, Contender] = {}

            def start(engine: Engine) -> None:
                with self._leaving(engine):
                    others[engine] = running.enter_context(self._start(engine))
                    self._progress(f"{engine.name} has started")

            with ThreadPoolExecutor(os.cpu_count()) as starting:
                list(starting.map(start, sorted(self._left(), key=lambda one: one.library not in COMPILED)))
            self._compare_states(plain, others)
            for case in WORKLOADS:
                self._measure(case, plain, others)

    def run_tenants(self) -> None:
        """Each engine in turn loads 32 tenants and takes turns with plain transformers, which has 32 models."""
        with self._start(PLAIN) as plain:
            load_tenants(plain, EngineResult())
            for engine in self._left():
                with self._leaving(engine), self._start(engine) as contender:
                    if "tenants" in contender.cases:
                        load_tenants(contender, self._found[engine])
                        self._measure("tenants", plain, {engine: contender})

    def _start(self, engine: Engine) -> Contender:
        return engine.start(self._checkpoint, self._folder, self._options.threads, self._options.level)

    def _left(self) -> list[Engine]:
        return [engine for engine, own in self._found.items() if own.left_out is None]

    @contextmanager
    def _leaving(self, engine: Engine) -> Iterator[None]:
        try:
            yield
        except (RuntimeError, OSError) as error:
            self._found[engine].left_out = f"it failed: {error}"
            self._progress(f"{engine.name} failed: {error}")

    def _compare_states(self, plain: Contender, others: dict[Engine, Contender]) -> None:
        """The cosine of each token of the random batches to that of plain transformers."""
        plain.seconds("states")
        exact = np.load(self._folder / f"{plain.name}.npy")
        for engine, contender in others.items():
            with self._leaving(engine):
                if "states" in contender.cases:
                    contender.seconds("states")
                    own = np.load(self._folder / f"{contender.name}.npy")
                    norms = np.linalg.norm(exact, axis=1) * np.linalg.norm(own, axis=1)
                    self._found[engine].cosines = ((exact * own).sum(1) / norms).tolist()
        self._progress("cosines")

    def _measure(self, case: str, plain: Contender, others: dict[Engine, Contender]) -> None:
        """Appends the ratios of `case`: all by turns in each round, after one warm-up."""
        for number in range(self._options.rounds + 1):
            reference = plain.seconds(case)
            for engine in filter(others.__contains__, self._left()):
                with self._leaving(engine):
                    ratio = reference / others[engine].seconds(case)
                    if number:
                        self._found[engine].ratios.setdefault(case, []).append(ratio)
        middles = (f"{one.name} {median(own.ratios.get(case))}" for one, own in self._found.items() if one in others)
        self._progress(f"{case}: {', '.join(middles)}")

    def _progress(self, text: str) -> None:
        print(f"{time.monotonic() - self._started:4.0f} s  {text}", file=sys.stderr, flush=True)


def load_tenants(contender: Contender, found: EngineResult) -> None:
    """One more tenant, 31 times."""
    contender.seconds("tenants")
    before = contender.peak_bytes
    found.load_ms = 1e3 * statistics.median(contender.seconds("load") for _ in range(ROWS - 1))
    contender.seconds("tenants")
    found.load_mib = (contender.peak_bytes - before) / (ROWS - 1) / 2**20


def why_left_out(engine: Engine, level: str | None) -> str | None:
    """Why an engine does not run at `level` on this machine; None if it does."""
    if engine.precision == "bfloat16" and not multiplies_bfloat16(level):
        return "the processor only emulates bfloat16"
    if level not in (None, own_level()) and engine.library in NOT_HELD:
        return "not all of it can be held to a level"
    return None


def report(found: dict[Engine, EngineResult], options: argparse.Namespace) -> None:
    """A line for each engine."""
    kind, name = processor()
    print(f"{name} ({kind}), {options.level or own_level()}, threads: {options.threads}")
    print("times as fast as plain transformers in float32; cost of one more tenant")
    table = Table("", *CASES, "load ms", "MiB", "cosine, mean / min")
    for engine, own in found.items():
        if own.left_out is None or own.ratios:
            table.row(engine.name, *own.cells())
    for engine, own in found.items():
        if own.left_out is not None:
            print(f"left out: {engine.name}, because {own.left_out}")
    write_json(options, {engine.name: asdict(own) for engine, own in found.items()})


def main() -> None:
    parser = create_parser(__doc__, threads=1, sentences=64, rounds=3)
    add_data(parser)
    parser.add_argument(
        "--engines", nargs="+", default=[one.name for one in FOREIGN + PELTIER], help="only these; all by default"
    )
    parser.add_argument("--tenants", action="store_true", help="also measure 32 tenants")
    add_level(parser)
    add_json(parser, "the ratios of each round")
    options = parser.parse_args()
    engines = [engine for engine in FOREIGN + PELTIER if engine.name in options.engines]
    found = {engine: EngineResult(left_out=why_left_out(engine, options.level)) for engine in engines}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_work(folder, options.data, options.sentences)
        race = Race(options, folder, found)
        try:
            race.run()
            if options.tenants:
                race.run_tenants()
        finally:
            report(found, options)


if __name__ == "__main__":
    main()
