"""How long does the native attention take beside torch's, with up to 32,768 keys?

    .venv/bin/python benchmarks/long_attention.py [--tokens 128 512 2048 8192 32768] [--level avx2] [--rounds 5]

Two heads of 64 elements of one text, in float32 with one thread, by turns: over all tokens, compared with torch's
`scaled_dot_product_attention`, and over a window of 64 tokens to each side, as in ModernBERT, for which torch has only
masks. The last columns have the native time over that of torch, and the rate of the native one.

Small: --tokens 16 600 --rounds 1
"""

from functools import partial

import torch
from common.forced import add_level, hold_process
from common.harness import Table, create_parser, median, ratios, time_by_turns
from peltier_backbone.machine.heap import keep_freed_memory
from peltier_backbone.native.choice import load_library
from peltier_backbone.native.inner_kernels import attend
from peltier_backbone.native.rows import PlacedRows
from torch.nn import functional as F

HEADS, SIZE, WINDOW = 2, 64, 64
WHOLE, NEAR, TORCH = "native", "in a window", "torch"
# A call of few tokens is repeated until it takes about as long as one of so many.
LONG_ENOUGH = 2_048


def measure(tokens: int, rounds: int) -> dict[str, list[float]]:
    """CPU seconds of each kind of attention in each round."""
    library, rows = load_library(), PlacedRows.packed([tokens], [tokens])
    if library is None:
        raise SystemExit("this machine has no native kernels to compare")
    query, key, value = torch.randn(tokens, 3 * HEADS * SIZE).chunk(3, -1)
    native = partial(attend, library, query, key, value, SIZE, rows, HEADS, scale=SIZE**-0.5)
    heads = [one.view(1, tokens, HEADS, SIZE).transpose(1, 2) for one in (query, key, value)]
    repeats = max(1, (LONG_ENOUGH // tokens) ** 2)

    def repeated(call: partial[object]) -> None:
        for _ in range(repeats):
            call()

    calls = {
        WHOLE: native,
        NEAR: partial(native, window=WINDOW),
        TORCH: partial(F.scaled_dot_product_attention, *heads),
    }
    found = time_by_turns({name: partial(repeated, call) for name, call in calls.items()}, rounds)
    return {name: [seconds / repeats for seconds in taken] for name, taken in found.items()}


@torch.inference_mode()
def main() -> None:
    parser = create_parser(__doc__, tokens=(128, 512, 2_048, 8_192, 32_768), rounds=5)
    add_level(parser)
    options = parser.parse_args()
    hold_process(options.level)
    torch.set_num_threads(1)
    keep_freed_memory()  # as a server does
    table = Table("tokens", "native ms", "window ms", "torch ms", "native / torch", "GFLOP/s")
    for tokens in options.tokens:
        found = measure(tokens, options.rounds)
        times = (median([1e3 * seconds for seconds in found[name]]) for name in (WHOLE, NEAR, TORCH))
        products = 2 * tokens**2 * SIZE * HEADS
        rate = median([2 * products / seconds / 1e9 for seconds in found[WHOLE]], ".0f")
        table.row(f"{tokens:,}", *times, median(ratios(found[WHOLE], found[TORCH])), rate)


if __name__ == "__main__":
    main()
