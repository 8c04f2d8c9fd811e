"""What batches of ever new sizes cost: the memory they take permanently, and the speed beside oneDNN's products.

    .venv/bin/python benchmarks/batch_sizes.py [--dtype float32 bfloat16] [--rounds 5] [--soak 10000]

oneDNN prepares code for each number of tokens and keeps it. Two processes compute the same batches by turns: one with
the kernel that `peltier serve` takes, one with oneDNN's products of prepacked weights, of which it keeps as many as by
default. The sizes of batches are fixed, those of single short texts, of up to 32 texts, or any number up to
`--max-tokens`. Milliseconds are CPU time of a batch, the least of the rounds. `--soak N` computes N
batches of random sizes as `peltier serve` does, after one batch of the largest size, and reports how far memory grew.

Small: --dtype float32 --kind fixed --max-tokens 256 --rounds 1
"""

import argparse
import json
import random
import tempfile
from contextlib import ExitStack
from functools import partial
from itertools import product
from pathlib import Path

from common.harness import Table, by_turns, create_parser, median_ratio
from common.memory import ProcessMemory
from peers.contender import Contender

SIDES = ("native", "onednn")
KINDS = ("fixed", "one text", "up to 32 texts", "any")
BATCHES, SOAKED = 48, 500
Series = dict[str, list[int]]


def draw_series(max_tokens: int, num_soaked: int) -> Series:
    """Tokens of the batches of a pass, by the kind of sizes; those of a soak by the number of batches at their end."""
    draw = random.Random(0)
    lengths = [max(4, min(64, round(draw.gauss(25, 12)))) for _ in range(1000)]
    ends = range(SOAKED, num_soaked + SOAKED, SOAKED)
    return {
        "largest": [max_tokens],
        "fixed": [size for size in (16, 64, 256, 800) if size <= max_tokens] * (BATCHES // 4),
        "one text": [draw.choice(lengths) for _ in range(BATCHES * 4)],
        "up to 32 texts": [sum(draw.sample(lengths, draw.randint(1, 32))) for _ in range(BATCHES * 2)],
        "any": [draw.randint(1, max_tokens) for _ in range(BATCHES)],
    } | {str(end): [draw.randint(1, max_tokens) for _ in range(SOAKED)] for end in ends}


class SizedBatches(Contender):
    """The process of one side, after a batch of the largest size."""

    def __init__(self, options: argparse.Namespace, dtype: str, side: str, file: Path) -> None:
        super().__init__(side, "sized_batches.py", None, options.backbone, options.preset, dtype, side, str(file))
        self.seconds("largest")
        self._memory = ProcessMemory(self.pid)
        self._start_mib = self._memory.now_mib

    @property
    def grown_mib(self) -> float:
        """MiB more than after the first batch."""
        return self._memory.now_mib - self._start_mib


def compare(options: argparse.Namespace, file: Path, series: Series) -> None:
    """Both processes by turns over each kind of sizes."""
    table = Table("sizes", "ms", "oneDNN ms", "ratio", "MiB grown", "oneDNN's")
    for dtype, kind in product(options.dtype, options.kind):
        with ExitStack() as stack:
            both = {side: stack.enter_context(SizedBatches(options, dtype, side, file)) for side in SIDES}
            found = by_turns({side: partial(one.seconds, kind) for side, one in both.items()}, options.rounds)
            grown = [f"{one.grown_mib:.0f}" for one in both.values()]
        ms = [f"{1000 * min(seconds) / len(series[kind]):.2f}" for seconds in found.values()]
        table.row(f"{dtype}, {kind}", *ms, f"{median_ratio(found['native'], found['onednn']):.3f}", *grown)


def soak(options: argparse.Namespace, file: Path, series: Series) -> None:
    """Memory over many batches of random sizes."""
    for dtype in options.dtype:
        with SizedBatches(options, dtype, "native", file) as process:
            for number in filter(str.isdigit, series):
                process.seconds(number)
                print(f"{dtype}: {number:>6} batches, {process.grown_mib:+.0f} MiB", flush=True)


def main() -> None:
    parser = create_parser(__doc__, backbone="minilm", preset="compacter", rounds=5, max_tokens=2048, soak=0)
    parser.add_argument("--dtype", nargs="+", default=["float32", "bfloat16"])
    parser.add_argument("--kind", nargs="+", default=KINDS, choices=KINDS, help="of sizes")
    options = parser.parse_args()
    series = draw_series(options.max_tokens, options.soak)
    with tempfile.NamedTemporaryFile("w") as file:
        json.dump(series, file)
        file.flush()
        (soak if options.soak else compare)(options, Path(file.name), series)


if __name__ == "__main__":
    main()
