"""Peltier, AdapterHub and PEFT: 32 rows without padding, each with its own adapter, on one thread.

    .venv/bin/python benchmarks/peers/throughput.py [--dtype bfloat16] [--rounds 4] [--json FILE]
    .venv/bin/python benchmarks/peers/throughput.py --methods lora --widths 16 --rounds 1        (a minute)

Every library runs in its own process (AdapterHub pins an older transformers) and computes on request, so contenders
take turns within a run. Times are CPU seconds of the computing process; the reference is plain transformers without
adapters in float32, just before. A batch has one method, or its rows are divided among the first two to eight of LoRA,
a bottleneck, Compacter, UniPELT, Houlsby's adapters, prefixes, AdaMix and BitFit. AdapterHub takes one method per
batch, so four methods are four forward passes of eight rows; it has neither AdaMix nor BitFit. Of these methods PEFT
mixes only LoRA adapters in one batch. A line is printed as soon as its case is measured.
"""

import sys
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from itertools import product
from pathlib import Path

from batches import ALONE, METHODS, MIXES, ROWS, WIDTHS
from contender import Contender
from peltier_backbone.checkpoint.checkpoint import find_checkpoint

sys.path.insert(0, str(Path(__file__).parents[1]))
from common.harness import Table, add_json, by_turns, create_parser, median, ratios, write_json

CASES = {
    "bare": "none",
    **{method: f"{ROWS} {method}" for method in ALONE},
    **{f"{count} methods": f"of {count} methods" for count in MIXES},
}
# And what each needs to be installed.
LIBRARIES = {"peltier": None, "adapterhub": "adapterhub", "peft": "peft"}
CaseRatios = dict[str, dict[str, list[float]]]


def measure(contenders: Sequence[Contender], widths: Sequence[int], rounds: int) -> CaseRatios:
    """How many times as fast as plain transformers each contender is, by case and round. All take turns. Prints a line
    for each shape and method."""
    plain, found = "plain", {one.name: {} for one in contenders}
    table = Table("rows x tokens", "adapters", *found, "peltier / bare", first=15)
    for width, (name, what) in product(widths, CASES.items()):
        case = f"{width} {name}"
        able = [one for one in contenders if case in one.cases]
        if not able:
            continue
        measures = {plain: partial(contenders[0].seconds, f"{width} transformers")}
        seconds = by_turns(measures | {one.name: partial(one.seconds, case) for one in able}, rounds)
        for one in able:
            found[one.name][case] = ratios(seconds[plain], seconds[one.name])
        own = found["peltier"]
        beside_bare = ratios(own[case], own[f"{width} bare"])
        table.row(
            f"{ROWS} x {width}", what, *(median(cases.get(case)) for cases in found.values()), median(beside_bare)
        )
    return found


def main() -> None:
    parser = create_parser(__doc__, rounds=4)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=METHODS)
    parser.add_argument("--widths", type=int, nargs="+", choices=WIDTHS, default=WIDTHS, help="tokens of a row")
    add_json(parser, "the ratios of each round")
    options = parser.parse_args()
    arguments = "mixed", options.dtype, str(find_checkpoint("minilm")), *options.methods
    print(f"{options.dtype}; times as fast as plain transformers without adapters in float32")
    with ExitStack() as running:
        contenders = [
            running.enter_context(Contender(name, f"library_{name}.py", origin, *arguments))
            for name, origin in LIBRARIES.items()
        ]
        found = measure(contenders, options.widths, options.rounds)
    write_json(options, found)


if __name__ == "__main__":
    main()
