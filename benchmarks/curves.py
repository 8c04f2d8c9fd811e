"""How the rate of batches falls with the number of adapters in them.

    .venv/bin/python benchmarks/curves.py [--dtypes float32 int8] [--level avx2] [--rounds 5] [--json FILE]

Batches of 64 sentences of SST-2's lengths have 1, 4, 16 and 64 different adapters of one preset, or of four presets by
turns. Ratios compare with the bare backbone, which takes turns with them: the same tokens, in process CPU time on one
thread. `traffic.py --room` measures servers with more adapters than fit.
"""

import random
from functools import partial
from itertools import product

import torch
from common.forced import add_level, hold_process
from common.harness import Call, Rounds, Table, add_json, create_parser, median, ratios, time_by_turns, write_json
from common.passes import FOUR, Adapters, bare_pass, mixed_pass
from common.sentences import load_sentences
from peltier_adapters.batch.row import Row
from peltier_backbone.backbone import Backbone
from peltier_backbone.load import DTYPES, load_backbone
from peltier_backbone.machine.heap import keep_freed_memory
from peltier_backbone.text.packing import Encoded

ROWS, COUNTS = 64, (1, 4, 16, 64)
MIXES = (FOUR, *((preset,) for preset in FOUR))
BARE = "bare"


def name_of(presets: tuple[str, ...], count: int) -> str:
    """A batch's name in the file of results."""
    return f"{' '.join(presets)}: {count}"


def with_adapters(
    adapters: Adapters, batch: list[Encoded], presets: tuple[str, ...], count: int
) -> list[Row]:  # fmt: skip
    """The batch with `count` adapters of `presets`. Each has the same number of rows, in random order."""
    taken = [adapters.take(preset, count // len(presets)) for preset in presets]
    residents = [resident for group in taken for resident in group]
    order = random.Random(0).sample(range(len(batch)), len(batch))
    return [Row(row, residents[place % count]) for row, place in zip(batch, order, strict=True)]


def measure_batches(backbone: Backbone, exact: Backbone, rounds: int) -> Rounds:
    """How many times as fast as the bare backbone, round by round."""
    batch = [backbone.tokenizer.encode(text, max_tokens=128) for text in load_sentences(None, ROWS)]
    adapters = Adapters(backbone, exact)
    calls: dict[str, Call] = {}
    for presets, count in product(MIXES, COUNTS):
        if count >= len(presets):
            rows = with_adapters(adapters, batch, presets, count)
            calls[name_of(presets, count)] = partial(mixed_pass, backbone, [rows])
    seconds = time_by_turns({BARE: partial(bare_pass, backbone, [batch]), **calls}, rounds)
    return {name: ratios(seconds[BARE], seconds[name]) for name in calls}


def report(dtype: str, found: Rounds) -> None:
    """A line for each preset."""
    print(f"\n{dtype}: rate of {ROWS} rows with so many adapters, x bare, median of rounds")
    table = Table("", *map(str, COUNTS), first=16)
    for presets in MIXES:
        name = "four presets" if len(presets) > 1 else presets[0]
        table.row(name, *(median(found.get(name_of(presets, count)), ".3f") for count in COUNTS))


def main() -> None:
    parser = create_parser(__doc__, rounds=5)
    parser.add_argument("--dtypes", nargs="+", choices=list(DTYPES), default=["float32", "int8"])
    add_level(parser)
    add_json(parser, "the ratios of each round")
    given = parser.parse_args()
    hold_process(given.level)
    keep_freed_memory()
    torch.set_num_threads(1)
    exact, found = load_backbone("minilm"), {}
    for dtype in given.dtypes:
        found[dtype] = measure_batches(load_backbone("minilm", dtype=dtype), exact, given.rounds)
        report(dtype, found[dtype])
    write_json(given, found)


if __name__ == "__main__":
    main()
