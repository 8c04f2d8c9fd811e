"""The cases of every library, in one of three sets, which the first argument of a script `library_*.py` chooses.

`mixed DTYPE CHECKPOINT [METHOD ...]` has batches of 32 adapters of one or of several methods, for `throughput.py`;
`crowd METHOD CHECKPOINT` adds adapters and computes batches of all that are loaded, for `crowds.py`; `loads METHOD
CHECKPOINT` loads one more adapter from its file or folder, for `loads.py`.

It uses only the standard library, because the interpreters of AdapterHub and PEFT cannot import the rest of this
project.
"""

import itertools
import random
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TypeVar

from answering import Cases, answer

WHICH, KIND, CHECKPOINT = sys.argv[1:4] if len(sys.argv) > 3 else ("", "", "")
ROWS, WIDTHS = 32, (64, 16)
METHODS = ("lora", "bottleneck", "compacter", "unipelt", "houlsby", "prefix", "adamix", "bitfit")
# Methods of which there are also batches of 32 adapters of one method.
ALONE = METHODS[:4]
MIXES = (2, 3, 4, 6, 8)

Adapter = TypeVar("Adapter")
# Computes a batch of so many tokens in each row; every row has its adapter, and rows of one adapter are neighbours.
Run = Callable[[list[Adapter], int], object]


def answer_set(mixed: Callable[[], Cases], crowd: Callable[[], Cases], loads: Callable[[str], Cases]) -> None:
    """Answers the cases of the chosen set until standard input ends. `loads` gets a new folder."""
    with tempfile.TemporaryDirectory() as folder:
        answer({"mixed": mixed, "crowd": crowd, "loads": lambda: loads(folder)}[WHICH]())


def asked(methods: Iterable[str]) -> list[str]:
    """Those of `methods` that the rest of the command line names; all if it names none."""
    return [method for method in methods if method in (sys.argv[4:] or METHODS)]


def most_rows(method: str) -> int:
    """How many adapters of `method` the batches need at most."""
    mixes = [count for count in MIXES if method in METHODS[:count]]
    return ROWS if method in ALONE else max(_shares(count)[method] for count in mixes)


def mixed_cases(adapters: Mapping[str, Sequence[Adapter]], run: Run[Adapter], *, apart: bool = False) -> Cases:
    """Batches of the methods that the library has, with the adapters of each. If its methods must be `apart`, it
    computes a batch for each."""
    batches = {method: [list(adapters[method][:ROWS])] for method in ALONE if method in adapters}
    for count in MIXES:
        if adapters.keys() >= set(METHODS[:count]):
            parts = [list(adapters[method][:rows]) for method, rows in _shares(count).items()]
            batches[f"{count} methods"] = parts if apart else [list(itertools.chain(*parts))]
    return {
        f"{width} {name}": lambda width=width, parts=parts: [run(part, width) for part in parts]
        for width, (name, parts) in itertools.product(WIDTHS, batches.items())
    }


def crowd_cases(add: Callable[[int], Adapter], run: Run[Adapter]) -> Cases:
    """`add` loads the adapter of that number. The adapter of rank r is asked 1 / r times as often as the first."""
    loaded, turns = list[Adapter](), itertools.count()

    def draw(width: int) -> None:
        weights = list(itertools.accumulate(1 / rank for rank in range(1, len(loaded) + 1)))
        drawn = random.Random(next(turns)).choices(range(len(loaded)), cum_weights=weights, k=ROWS)
        run([loaded[number] for number in sorted(drawn)], width)

    return {"add": lambda: loaded.append(add(len(loaded)))} | {str(width): lambda w=width: draw(w) for width in WIDTHS}


def _shares(num_methods: int) -> dict[str, int]:
    """The rows of each method in a batch that is divided evenly among the first `num_methods`."""
    return {
        method: ROWS // num_methods + (place < ROWS % num_methods) for place, method in enumerate(METHODS[:num_methods])
    }
