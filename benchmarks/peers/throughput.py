"""Peltier, AdapterHub and PEFT: 32 rows without padding, each with its own adapter, on one thread.

    .venv/bin/python benchmarks/peers/throughput.py [--dtype bfloat16] [--rounds 4] [--json FILE]

Every library runs in its own process (AdapterHub pins an older transformers) and computes on request, so contenders
take turns within a run. Times are CPU seconds of the computing process; the reference is plain transformers without
adapters in float32, just before. A batch has one method, or its rows are divided among the first two to eight of LoRA,
a bottleneck, Compacter, UniPELT, Houlsby's adapters, prefixes, AdaMix and BitFit. AdapterHub takes one method per
batch, so four methods are four forward passes of eight rows; it has neither AdaMix nor BitFit. Of these methods PEFT
mixes only LoRA adapters in one batch.
"""

import argparse
import json
import statistics
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

from batches import ALONE, MIXES, ROWS, WIDTHS
from contender import Contender
from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from rich.console import Console
from rich.table import Table

CASES = {
    "bare": "none",
    **{method: f"{ROWS} {method}" for method in ALONE},
    **{f"{count} methods": f"of {count} methods" for count in MIXES},
}
Ratios = dict[str, dict[str, list[float]]]


def measure(contenders: list[Contender], rounds: int) -> Ratios:
    """How many times as fast as plain transformers, which run just before: of each contender those of each case, round
    by round, after one warm-up."""
    ratios: Ratios = {one.name: defaultdict(list) for one in contenders}
    for number in range(rounds + 1):
        for case in (f"{width} {name}" for width in WIDTHS for name in CASES):
            plain = contenders[0].seconds(f"{case.split()[0]} transformers")
            for one in contenders:
                if case in one.cases:
                    found = plain / one.seconds(case)
                    if number:
                        ratios[one.name][case].append(found)
    return ratios


def middle(rounds: Iterable[float]) -> str:
    """Their median, if there are any."""
    found = list(rounds)
    return f"{statistics.median(found):.2f}" if found else ""


def report(ratios: Ratios, dtype: str) -> None:
    """A row for each shape and method."""
    table = Table("rows x tokens", "adapters", *ratios, "peltier / bare")
    for width in WIDTHS:
        bare = ratios["peltier"][f"{width} bare"]
        for name, what in CASES.items():
            cells = [cases.get(f"{width} {name}", []) for cases in ratios.values()]
            beside = (own / other for own, other in zip(cells[0], bare, strict=True))
            table.add_row(f"{ROWS} x {width}", what, *map(middle, cells), middle(beside))
    console = Console(width=100)
    console.print(f"{dtype}; times as fast as plain transformers without adapters in float32")
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--json", type=Path, help="also write the ratios of each round here")
    options = parser.parse_args()
    arguments = options.dtype, str(find_checkpoint("minilm"))
    contenders = [
        Contender("peltier", "run_peltier.py", None, *arguments),
        Contender("adapterhub", "run_adapterhub.py", "adapterhub", *arguments),
        Contender("peft", "run_peft.py", "peft", *arguments),
    ]
    try:
        ratios = measure(contenders, options.rounds)
    finally:
        for one in contenders:
            one.close()
    report(ratios, options.dtype)
    if options.json:
        options.json.write_text(json.dumps(ratios))


if __name__ == "__main__":
    main()
