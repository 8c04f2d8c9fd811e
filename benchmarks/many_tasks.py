"""How much faster are many tasks on one text than as many separate rows?

Each batch has N rows of one text, each with an adapter of its own: Compacter, UniPELT, LoRA and AdaMix in turn, which
all leave the first K of MiniLM's blocks alone. `shared` are rows of one tenant, which share what no adapter changes;
`separate` are the same rows without a tenant, which share nothing. Both run by turns, and the medians of `--rounds`
count. Outputs are compared: they must be equal to the last bit.
"""

import os
import statistics
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from itertools import cycle, islice

os.environ.setdefault("OMP_WAIT_POLICY", "passive")

import torch
from common.adapters import make_bytes
from common.harness import by_turns, create_parser, seconds_of
from common.passes import FOUR
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.residency.bank import Banks, Resident
from peltier_backbone.backbone import Backbone
from peltier_backbone.load import load_backbone

WORDS = (
    "what begins as a modest story about two brothers and their farm grows into one of the warmest films of the year"
)


def make_residents(backbone: Backbone, exact: Backbone, first_block: int, count: int) -> list[Resident]:
    """`count` adapters of four presets, made in float32, which leave the blocks before `first_block` alone."""
    banks, presets = Banks(backbone), islice(cycle(FOUR), count)
    made = (make_bytes(exact, preset, number, first_block=first_block) for number, preset in enumerate(presets))
    return [banks.add(read_artifact(data, backbone)) for data in made]


def check(backbone: Backbone, shared: Sequence[Row], separate: Sequence[Row]) -> None:
    """Sharing must change no bit."""
    pairs = zip(forward(backbone, shared), forward(backbone, separate), strict=True)
    assert all(torch.equal(one.logits, other.logits) for one, other in pairs), "sharing changed an answer"


def main() -> None:
    parser = create_parser(__doc__, tasks=(1, 2, 5, 10, 20, 50, 100), tokens=25, rounds=15, threads=1)
    parser.add_argument("--dtype", default="float32", choices=("float32", "bfloat16", "int8"))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    backbone = load_backbone("minilm", dtype=options.dtype)
    exact = load_backbone("minilm")
    text = backbone.tokenizer.encode(" ".join(islice(cycle(WORDS.split()), options.tokens)), max_tokens=options.tokens)
    num_layers = backbone.config.num_layers
    print(f"{len(text)} tokens, {options.dtype}, {options.threads} threads; rows/s separate, shared, and their ratio")
    for first_block in (0, num_layers // 2, num_layers - 1):
        residents = make_residents(backbone, exact, first_block, max(options.tasks))
        for count in options.tasks:
            separate = [Row(text, resident) for resident in residents[:count]]
            shared = [replace(row, scope="tenant") for row in separate]
            check(backbone, shared, separate)
            calls = {"separate": partial(forward, backbone, separate), "shared": partial(forward, backbone, shared)}
            seconds = by_turns({name: partial(seconds_of, call) for name, call in calls.items()}, options.rounds)
            alone, together = map(statistics.median, seconds.values())
            rates = f"{count / alone:8.0f} {count / together:8.0f} {alone / together:6.2f}"
            print(f"K = {first_block} of {num_layers}, N = {count:3d}: {rates}", flush=True)


if __name__ == "__main__":
    main()
