"""Batches of 32 rows with more and more loaded adapters: Peltier, AdapterHub and PEFT, on one thread.

    .venv/bin/python benchmarks/peers/crowds.py [--adapters 1 10 100] [--rounds 8] [--json FILE]

Every library and method runs in its own process; they take turns. A batch uses the adapter of rank r 1 / r times as
often as the first. All processes compute the same batches, whose rows need no padding. Ratios compare CPU seconds with
those of plain transformers without adapters just before. The benchmark reads no files and uses no HTTP. AdapterHub
stops at 1,000 adapters and PEFT at 300, because the time of one more load grows with the number of loaded adapters; the
table has the CPU seconds of all loads. Most of the time goes into their loads, which run in parallel.
"""

import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from batches import ROWS, WIDTHS
from contender import Contender
from peltier_backbone.checkpoint.checkpoint import find_checkpoint

sys.path.insert(0, str(Path(__file__).parents[1]))
from common.harness import Table, add_json, create_parser, median, write_json

# The method, the library that it needs, and how many adapters it loads at most.
SCRIPTS = (
    ("peltier", "lora", None, 10_000),
    ("peltier", "compacter", None, 10_000),
    ("adapterhub", "lora", "adapterhub", 1_000),
    ("adapterhub", "compacter", "adapterhub", 1_000),
    ("peft", "lora", "peft", 300),
)


@dataclass
class LibraryCrowd:
    """Adapters of one method in one library. `loading` has the CPU seconds of all loads by number of adapters. `ratios`
    says how many times as fast as plain transformers a batch was: by number of adapters, width and round."""

    contender: Contender
    most: int
    num_loaded: int = 0
    loading: dict[int, float] = field(default_factory=dict)
    ratios: dict[int, dict[int, list[float]]] = field(default_factory=dict)

    def grow(self, count: int) -> None:
        """Loads adapters until there are `count`."""
        before = max(self.loading.values(), default=0.0)
        self.loading[count] = before + sum(self.contender.seconds("add") for _ in range(count - self.num_loaded))
        self.num_loaded = count

    def race(self, width: int, yardstick: Contender) -> None:
        """One batch, after one of plain transformers."""
        rounds = self.ratios.setdefault(self.num_loaded, {}).setdefault(width, [])
        rounds.append(yardstick.seconds(f"{width} transformers") / self.contender.seconds(str(width)))

    def warm(self) -> None:
        """Runs each width once, which warms up its code."""
        for width in WIDTHS:
            self.contender.seconds(str(width))


def measure(crowds: Sequence[LibraryCrowd], counts: Sequence[int], rounds: int) -> None:
    """For each number of adapters, all contenders that reach it, in turn in every round."""
    for count in counts:
        able = [one for one in crowds if count <= one.most]
        with ThreadPoolExecutor(len(able)) as loading:
            list(loading.map(lambda one, count=count: one.grow(count), able))
        for one in able:
            one.warm()
        for _ in range(rounds):
            for width in WIDTHS:
                for one in able:
                    one.race(width, crowds[0].contender)


def report(crowds: Sequence[LibraryCrowd], counts: Sequence[int]) -> None:
    """A line for each process and shape, a column for each number of adapters; then what the loads took."""
    print("adapters loaded; times as fast as plain transformers without adapters")
    table = Table("rows x tokens", *(f"{count:,}" for count in counts), first=40)
    for width in WIDTHS:
        for one in crowds:
            table.row(f"{ROWS} x {width}, {one.contender.name}", *(median(own[width]) for own in one.ratios.values()))
    for one in crowds:
        table.row(f"all loads, CPU s, {one.contender.name}", *(f"{seconds:.1f}" for seconds in one.loading.values()))


def main() -> None:
    parser = create_parser(__doc__, adapters=(1, 10, 100, 300, 1_000, 10_000), rounds=8)
    add_json(parser, "the ratios of each round")
    given = parser.parse_args()
    counts, checkpoint = sorted(given.adapters), str(find_checkpoint("minilm"))
    with ExitStack() as running:
        crowds: list[LibraryCrowd] = []
        for library, method, origin, most in SCRIPTS:
            script = f"library_{library}.py", origin, "crowd", method, checkpoint
            crowds.append(LibraryCrowd(running.enter_context(Contender(f"{library}, {method}", *script)), most))
        measure(crowds, counts, given.rounds)
    report(crowds, counts)
    write_json(given, {one.contender.name: one.ratios for one in crowds})


if __name__ == "__main__":
    main()
