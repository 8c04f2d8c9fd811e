"""Peltier beside AdapterHub and PEFT: 32 rows without padding, each with an adapter of its own, on one thread.

    .venv/bin/python benchmarks/peers/throughput.py [--dtype bfloat16] [--rounds 4]

Every library runs in a process of its own (AdapterHub pins an older transformers) and computes when it is asked to, so
that contenders take turns within a run. Times are CPU seconds of the process that computes; the yardstick is plain
transformers without adapters in float32, of the same round. AdapterHub takes one method a batch, so that four methods
are four forwards of eight rows; PEFT takes several adapters in one batch for LoRA alone.
"""

import argparse
import statistics
from collections import defaultdict

from contender import Contender
from peltier_backbone.checkpoint import find_checkpoint
from rich.console import Console
from rich.table import Table

METHODS = ("bottleneck", "lora", "compacter", "unipelt", "four")
WIDTHS = (64, 16)
Seconds = dict[tuple[str, str], list[float]]


def measure(contenders: list[Contender], rounds: int) -> Seconds:
    """CPU seconds of each (contender, case), round by round, after one warm-up."""
    seconds: Seconds = defaultdict(list)
    for number in range(rounds + 1):
        for case in sorted({case for one in contenders for case in one.cases}):
            for contender in contenders:
                if case in contender.cases:
                    found = contender.seconds(case)
                    if number:
                        seconds[contender.name, case].append(found)
    return seconds


def ratio(seconds: Seconds, contender: str, case: str, base: str) -> str:
    """How many times as fast as Peltier's process ran `base`, in the median of the rounds."""
    own, other = seconds.get((contender, case)), seconds["peltier", base]
    return "" if own is None else f"{statistics.median(b / a for a, b in zip(own, other, strict=True)):.2f}"


def report(seconds: Seconds, contenders: list[Contender], dtype: str) -> None:
    """A row for each shape and method."""
    table = Table("rows x tokens", "adapters", *(f"{one.name}" for one in contenders), "peltier / bare")
    for width in WIDTHS:
        plain = f"{width} transformers"
        table.add_row(f"32 x {width}", "none", ratio(seconds, "peltier", f"{width} bare", plain), "", "", "1.00")
        for method in METHODS:
            case = f"{width} {method}"
            cells = [ratio(seconds, one.name, case, plain) for one in contenders]
            what = "8 each of four methods" if method == "four" else f"32 {method}"
            table.add_row(f"32 x {width}", what, *cells, ratio(seconds, "peltier", case, f"{width} bare"))
    console = Console(width=100)
    console.print(f"{dtype}; times as fast as plain transformers without adapters in float32")
    console.print(table)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--dtype", choices=("float32", "bfloat16"), default="float32")
    parser.add_argument("--rounds", type=int, default=4)
    options = parser.parse_args()
    arguments = options.dtype, str(find_checkpoint("minilm"))
    contenders = [
        Contender("peltier", "run_peltier.py", None, *arguments),
        Contender("adapterhub", "run_adapterhub.py", "adapterhub", *arguments),
        Contender("peft", "run_peft.py", "peft", *arguments),
    ]
    try:
        report(measure(contenders, options.rounds), contenders, options.dtype)
    finally:
        for one in contenders:
            one.close()


if __name__ == "__main__":
    main()
