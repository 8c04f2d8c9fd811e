"""Greedy texts of a T5: Peltier against CTranslate2 and transformers' `generate`.

    .venv/bin/python benchmarks/peers/texts.py [--backbone DIR --data e2e_nlg/validation.jsonl.gz] [--level avx2]
        [--threads 2]

Each engine has the same checkpoint in its own process; they take turns within a run. All read the same inputs, sorted
by length, with at most 8, 16, 32 or 64 rows in a batch, and write greedily. Ratios compare tokens per second with plain
transformers in float32 just before, from CPU seconds of the computing process on one thread, or seconds by the clock on
several: of whole texts, of texts of one token, which take the encoder and one step, and of the further tokens, which
take steps alone. Peltier computes alone or with the adapters of 8 tenants, two of each of four presets, with their
weights at the start of a training: these change no text, so all texts can be compared. `same texts` counts those that
are equal to transformers', token by token.

`--backbone` is a T5 checkpoint, by default the small one of this repository; `shape` is one with random weights and the
shape of t5-small. `--data` has a `meaning_representation` column; without it, sentences of the sample data are read.
`--level` holds every process to an instruction level; Peltier in bfloat16 is left out where the processor only emulates
it.
"""

import argparse
import gzip
import json
import statistics
import sys
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import product
from pathlib import Path

from contender import Contender, Engine
from peltier_backbone.load import DTYPES, load_backbone
from transformers import AutoTokenizer, T5Config, T5ForConditionalGeneration

sys.path.insert(0, str(Path(__file__).parents[1]))
from common.adapters import make_bytes
from common.committed import processor
from common.forced import add_level, multiplies_bfloat16, own_level
from common.harness import Table, add_json, by_turns, create_parser, median, ratios, write_json
from common.libraries import kept
from common.sentences import load_sentences

SMALL = Path(__file__).parents[2] / "examples/backbones/t5-mini"
SIZES = (8, 16, 32, 64)
# Presets whose adapters change nothing before their training, and noise that an upload needs but no text shows.
PRESETS = ("compacter", "lora", "adamix", "pfeiffer")
NOISE = 3e-4
PLAIN = Engine("text", "transformers", "float32")
ENGINES = [
    *(Engine("text", "ctranslate2", precision, "ctranslate2") for precision in ("float32", "int8")),
    *(Engine("text", "peltier", dtype, flags=flags) for dtype in DTYPES for flags in ((), ("--adapters",))),
]
TextsBySize = dict[str, list[list[int]]]


@dataclass
class TextResult:
    """The figures of one engine by number of rows: ratios to plain transformers in each round, for whole texts, first
    tokens and further tokens; and how many texts are the same as those of transformers."""

    ratios: dict[str, list[float]] = field(default_factory=dict)
    first: dict[str, list[float]] = field(default_factory=dict)
    further: dict[str, list[float]] = field(default_factory=dict)
    same: dict[str, int] = field(default_factory=dict)

    def cells(self) -> list[str]:
        """Its line in the table."""
        kinds = self.ratios, self.first, self.further
        middles = [" / ".join(median(kind[str(size)]) for kind in kinds) for size in SIZES]
        return [*middles, ", ".join(str(self.same[str(size)]) for size in SIZES)]


def random_shape() -> Path:
    """A checkpoint with the shape of t5-small, random weights, and the tokenizer of the small T5."""

    def write(folder: Path) -> None:
        AutoTokenizer.from_pretrained(SMALL).save_pretrained(folder)
        T5ForConditionalGeneration(T5Config(decoder_start_token_id=0)).save_pretrained(folder)

    return kept("t5-small-shape", b"1", write)


def load_inputs(data: Path | None, count: int) -> list[str]:
    """Distinct inputs of the file, or sentences."""
    if data is None:
        return load_sentences(None, count)
    with gzip.open(data, "rt") as file:
        texts = dict.fromkeys(json.loads(line)["meaning_representation"] for line in file)
    return [*texts][:count]


def write_work(folder: Path, checkpoint: Path, options: argparse.Namespace) -> None:
    """The inputs, and an adapter of each preset."""
    backbone = load_backbone(str(checkpoint))
    texts = load_inputs(options.data, options.inputs)
    rows = sorted((list(backbone.tokenizer.encode(text, max_tokens=128).ids) for text in texts), key=len)
    (folder / "work.json").write_text(json.dumps({"rows": rows, "sizes": SIZES, "limit": options.limit}))
    for preset in PRESETS:
        (folder / f"{preset}.safetensors").write_bytes(make_bytes(backbone, preset, 0, noise=NOISE))


def read_texts(contender: Contender, folder: Path) -> TextsBySize:
    """What it has written last, by number of rows."""
    contender.seconds("texts")
    texts: TextsBySize = json.loads((folder / f"{contender.name}.json").read_text())
    return texts


def measure(folder: Path, plain: Contender, others: dict[Engine, Contender], rounds: int) -> dict[Engine, TextResult]:
    """All by turns in each round, after one warm-up."""
    seconds: dict[tuple[str, str], list[float]] = {}
    for size in SIZES:
        measures = product((str(size), f"{size} first"), (plain, *others.values()))
        seconds |= by_turns({(one.name, case): partial(one.seconds, case) for case, one in measures}, rounds)
        print(f"{size} rows are measured", file=sys.stderr, flush=True)
    expected = read_texts(plain, folder)
    found = {engine: TextResult() for engine in others}
    for engine, contender in others.items():
        texts = read_texts(contender, folder)
        for case in map(str, SIZES):
            compare(found[engine], case, seconds, (plain.name, expected[case]), (engine.name, texts[case]))
    lengths = sorted(map(len, expected[str(SIZES[0])]))
    middle = statistics.median(lengths)
    print(f"{len(lengths)} texts of {lengths[0]} to {lengths[-1]} tokens, median {middle:.0f}")
    return found


def compare(
    found: TextResult, case: str, seconds: dict[tuple[str, str], list[float]], plain: tuple[str, list[list[int]]],
    other: tuple[str, list[list[int]]],
) -> None:  # fmt: skip
    """Adds the ratios of one number of rows: `plain` and `other` are an engine's name and its texts."""
    whole, first = (
        [seconds[name, kind] for name, _ in (plain, other)] for kind in (case, f"{case} first")
    )  # [plain's, the other's] rounds
    tokens, expected = (sum(map(len, texts)) for _, texts in (other, plain))
    rows = len(plain[1])
    found.ratios[case] = [tokens / expected * ratio for ratio in ratios(*whole)]
    found.first[case] = ratios(*first)
    found.further[case] = [
        (tokens - rows) / (expected - rows) * (a - a_first) / (b - b_first)
        for a, b, a_first, b_first in zip(*whole, *first, strict=True)
    ]
    found.same[case] = sum(map(list.__eq__, other[1], plain[1]))


def report(found: dict[Engine, TextResult], num_threads: int, level: str | None) -> None:
    """A line for each engine."""
    print(f"{processor()[1]}, {level or own_level()}, threads: {num_threads}")
    print("x plain transformers in float32: whole texts / first tokens / further tokens")
    table = Table("", *(f"{size} rows".rjust(20) for size in SIZES), "same texts")
    for engine, own in found.items():
        table.row(engine.name, *own.cells())


def main() -> None:
    parser = create_parser(__doc__, backbone=str(SMALL), inputs=128, limit=64, threads=1, rounds=6)
    parser.add_argument("--data", type=Path)
    add_level(parser)
    add_json(parser, "the ratios of each round")
    options = parser.parse_args()
    checkpoint = random_shape() if options.backbone == "shape" else Path(options.backbone)
    with tempfile.TemporaryDirectory() as name, ExitStack() as running:
        folder = Path(name)
        write_work(folder, checkpoint, options)
        engines = [one for one in ENGINES if one.precision != "bfloat16" or multiplies_bfloat16(options.level)]
        plain, *others = (
            running.enter_context(one.start(checkpoint, folder, options.threads, options.level))
            for one in (PLAIN, *engines)
        )
        found = measure(folder, plain, dict(zip(engines, others, strict=True)), options.rounds)
    report(found, options.threads, options.level)
    write_json(options, {engine.name: asdict(own) for engine, own in found.items()})


if __name__ == "__main__":
    main()
