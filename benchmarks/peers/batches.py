"""The batches that every library computes, in one of three sets of cases.

`library_*.py mixed DTYPE` has batches of 32 adapters of one or of several methods, for `throughput.py`; `crowd METHOD`
adds adapters and computes batches of all that are loaded, for `crowds.py`; `loads METHOD` loads one more adapter from
its file or folder, for `loads.py`.

It uses only the standard library, because the interpreters of AdapterHub and PEFT cannot import the rest of this
project.
"""

import random
from collections import Counter
from itertools import accumulate

ROWS, WIDTHS = 32, (64, 16)
METHODS = ("lora", "bottleneck", "compacter", "unipelt", "houlsby", "prefix", "adamix", "bitfit")
# Methods of which there are also batches of 32 adapters of one method.
ALONE = METHODS[:4]
MIXES = (2, 3, 4, 6, 8)


def shares(num_methods: int) -> dict[str, int]:
    """The rows of each method in a batch that is divided evenly among the first `num_methods`."""
    return {
        method: ROWS // num_methods + (place < ROWS % num_methods) for place, method in enumerate(METHODS[:num_methods])
    }


def most_rows(method: str) -> int:
    """How many adapters of `method` the batches need at most."""
    mixes = [count for count in MIXES if method in METHODS[:count]]
    return ROWS if method in ALONE else max(shares(count)[method] for count in mixes)


def draw_batch(num_adapters: int, turn: int) -> dict[int, int]:
    """Rows of each adapter in a batch. The adapter of rank r is asked 1 / r times as often as the first. Rows of one
    adapter are neighbours, as every library needs."""
    weights = list(accumulate(1 / rank for rank in range(1, num_adapters + 1)))
    drawn = random.Random(turn).choices(range(num_adapters), cum_weights=weights, k=ROWS)
    return dict(sorted(Counter(drawn).items()))
