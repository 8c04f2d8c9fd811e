"""Peltier, AdapterHub and PEFT: 32 rows without padding, each with its own adapter, on one thread.

    .venv/bin/python benchmarks/peers/throughput.py [--dtype bfloat16] [--rounds 4] [--json FILE]

Every library runs in its own process (AdapterHub pins an older transformers) and computes on request, so contenders
take turns within a run. Times are CPU seconds of the computing process; the reference is plain transformers without
adapters in float32, just before. A batch has one method, or its rows are divided among the first two to eight of LoRA,
a bottleneck, Compacter, UniPELT, Houlsby's adapters, prefixes, AdaMix and BitFit. AdapterHub takes one method per
batch, so four methods are four forward passes of eight rows; it has neither AdaMix nor BitFit. Of these methods PEFT
mixes only LoRA adapters in one batch.
"""

import statistics
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from itertools import product
from pathlib import Path

from batches import ALONE, MIXES, ROWS, WIDTHS
from contender import Contender
from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1]))
from common.options import add_json, create_parser, write_json
from common.turns import by_turns, ratios

CASES = {
    "bare": "none",
    **{method: f"{ROWS} {method}" for method in ALONE},
    **{f"{count} methods": f"of {count} methods" for count in MIXES},
}
# And what each needs to be installed.
LIBRARIES = {"peltier": None, "adapterhub": "adapterhub", "peft": "peft"}
CaseRatios = dict[str, dict[str, list[float]]]


def measure(contenders: list[Contender], rounds: int) -> CaseRatios:
    """How many times as fast as plain transformers each contender is, by case and round. All take turns."""
    plain, found = "plain", {one.name: {} for one in contenders}
    for width, name in product(WIDTHS, CASES):
        case = f"{width} {name}"
        able = [one for one in contenders if case in one.cases]
        measures = {plain: partial(contenders[0].seconds, f"{width} transformers")}
        seconds = by_turns(measures | {one.name: partial(one.seconds, case) for one in able}, rounds)
        for one in able:
            found[one.name][case] = ratios(seconds[plain], seconds[one.name])
    return found


def middle(rounds: Sequence[float]) -> str:
    """Their median, if there are any."""
    return f"{statistics.median(rounds):.2f}" if rounds else ""


def report(found: CaseRatios, dtype: str) -> None:
    """A row for each shape and method."""
    table = Table("rows x tokens", "adapters", *found, "peltier / bare")
    for width in WIDTHS:
        bare = found["peltier"][f"{width} bare"]
        for name, what in CASES.items():
            cells = [cases.get(f"{width} {name}", []) for cases in found.values()]
            table.add_row(f"{ROWS} x {width}", what, *map(middle, cells), middle(ratios(cells[0], bare)))
    console = Console(width=100)
    console.print(f"{dtype}; times as fast as plain transformers without adapters in float32")
    console.print(table)


def main() -> None:
    parser = create_parser(__doc__)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--rounds", type=int, default=4)
    add_json(parser, "the ratios of each round")
    options = parser.parse_args()
    arguments = options.dtype, str(find_checkpoint("minilm"))
    with ExitStack() as running:
        contenders = [
            running.enter_context(Contender(name, f"library_{name}.py", origin, "mixed", *arguments))
            for name, origin in LIBRARIES.items()
        ]
        found = measure(contenders, options.rounds)
    report(found, options.dtype)
    write_json(options, found)


if __name__ == "__main__":
    main()
