"""Peltier against the engines that serve a plain encoder on a CPU: onnxruntime, OpenVINO and CTranslate2.

    .venv/bin/python benchmarks/peers/engines.py [--data SST2/validation.jsonl.gz] [--threads 2] [--json FILE]

Each engine has the same frozen MiniLM in its own process, as its documentation recommends, and computes the hidden
states of token ids. Peltier does the same (bare), and answers with 32 adapters of four presets. Engines take turns
within a run; ratios compare with plain transformers in float32 just before. Times are CPU seconds of the computing
process on one thread, and seconds by the clock on several.

`random` is sentences of SST-2's lengths in random batches of 32, `sorted` the same sentences sorted by length. `32 x
64` and `32 x 16` need no padding. `single` is one row alone. `tenants` is 32 rows of 32 tenants: 32 models in an
engine, 32 adapters in Peltier; it needs up to 8 GB of memory, and `--without-tenants` leaves it out. `cosine` compares
each token's hidden state with that of plain transformers.
"""

import argparse
import json
import random
import statistics
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
from contender import Contender
from engine_process import Engine
from peltier_backbone.checkpoint import find_checkpoint
from peltier_backbone.load import DTYPES, load_backbone
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))
from common.adapters import make_bytes
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
        "ctranslate2": ("float32", "int8"),
    }.items()
    for precision in precisions
]
PELTIER = [Engine("engine", "peltier", dtype, flags=flags) for dtype in DTYPES for flags in ((), ("--adapters",))]


@dataclass
class Found:
    """Of one engine: round by round, how many times as fast as plain transformers it was in each case; the cosine of
    each token; and the CPU milliseconds and MiB of one more tenant."""

    ratios: dict[str, list[float]] = field(default_factory=dict)
    cosines: list[float] = field(default_factory=list)
    load_ms: float | None = None
    load_mib: float | None = None

    def cells(self) -> list[str]:
        """Its line in the table."""
        middles = (f"{statistics.median(self.ratios[case]):.2f}" if case in self.ratios else "" for case in CASES)
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


def race(case: str, plain: Contender, others: dict[Engine, Contender], rounds: int, found: dict[Engine, Found]) -> None:
    """Appends the ratios of `case`: all by turns in each round, after one warm-up."""
    for number in range(rounds + 1):
        reference = plain.seconds(case)
        for engine, contender in others.items():
            ratio = reference / contender.seconds(case)
            if number:
                found[engine].ratios.setdefault(case, []).append(ratio)


def compare_states(folder: Path, plain: Contender, others: dict[Engine, Contender], found: dict[Engine, Found]) -> None:
    """The cosine of each token of the random batches to that of plain transformers."""
    plain.seconds("states")
    exact = np.load(folder / f"{plain.name}.npy")
    for engine, contender in others.items():
        if "states" in contender.cases:
            contender.seconds("states")
            own = np.load(folder / f"{contender.name}.npy")
            norms = np.linalg.norm(exact, axis=1) * np.linalg.norm(own, axis=1)
            found[engine].cosines = ((exact * own).sum(1) / norms).tolist()


def race_tenants(checkpoint: Path, folder: Path, options: argparse.Namespace, found: dict[Engine, Found]) -> None:
    """32 tenants: each engine in turn loads all of them beside plain transformers with as many."""
    with PLAIN.start(checkpoint, folder, options.threads) as plain:
        load_tenants(plain, Found())
        for engine in found:
            with engine.start(checkpoint, folder, options.threads) as contender:
                if "tenants" in contender.cases:
                    load_tenants(contender, found[engine])
                    race("tenants", plain, {engine: contender}, options.rounds, found)


def load_tenants(contender: Contender, found: Found) -> None:
    """One more tenant, 31 times."""
    contender.seconds("tenants")
    before = contender.peak_bytes
    found.load_ms = 1e3 * statistics.median(contender.seconds("load") for _ in range(ROWS - 1))
    contender.seconds("tenants")
    found.load_mib = (contender.peak_bytes - before) / (ROWS - 1) / 2**20


def report(found: dict[Engine, Found], num_threads: int) -> None:
    """A line for each engine."""
    table = Table("", *CASES, "load ms", "MiB", "cosine, mean / min")
    for engine, own in found.items():
        table.add_row(engine.name, *own.cells())
    console = Console(width=140)
    console.print(f"threads: {num_threads}; times as fast as plain transformers in float32; cost of one more tenant")
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, help="SST-2's validation.jsonl.gz")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--sentences", type=int, default=96)
    parser.add_argument("--rounds", type=int, default=8)
    parser.add_argument(
        "--engines", nargs="+", default=[one.name for one in FOREIGN + PELTIER], help="only these; all by default"
    )
    parser.add_argument("--without-tenants", action="store_true")
    parser.add_argument("--json", type=Path, help="also write the ratios of each round here")
    options = parser.parse_args()
    found = {engine: Found() for engine in FOREIGN + PELTIER if engine.name in options.engines}
    checkpoint = find_checkpoint("minilm")
    with tempfile.TemporaryDirectory() as name, ExitStack() as running:
        folder = Path(name)
        write_work(folder, options.data, options.sentences)
        plain = running.enter_context(PLAIN.start(checkpoint, folder, options.threads))
        contenders = {one: running.enter_context(one.start(checkpoint, folder, options.threads)) for one in found}
        for case in WORKLOADS:
            race(case, plain, contenders, options.rounds, found)
        compare_states(folder, plain, contenders, found)
        running.close()
        if not options.without_tenants:
            race_tenants(checkpoint, folder, options, found)
    report(found, options.threads)
    if options.json:
        options.json.write_text(json.dumps({engine.name: asdict(own) for engine, own in found.items()}))


if __name__ == "__main__":
    main()
