"""How many batches of mixed traffic are replayed from CUDA graphs; needs no GPU.

    python benchmarks/gpu/graph_hits.py [--batches N]

Rows have lengths like SST-2's, like paragraphs', or both. Their adapters are of twelve banks, some much more frequent
than others. The number of rows in a batch follows the load: from single rows to as many as have 4,096 tokens. It prints
one line of JSON per traffic: the share of batches that were replayed after the first tenth, the graphs that were
captured, and the tokens that were computed for each token of a row.
"""

import json
import random
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from peltier_adapters.gpu import graphs as module
from peltier_adapters.gpu.frame import Shape
from peltier_adapters.gpu.graphs import Graphs
from peltier_adapters.residency.bank import Bank

sys.path.insert(0, str(Path(__file__).parents[1]))
from common.harness import create_parser

_NUM_BANKS, _MAX_TOKENS = 12, 4096
_LENGTHS: dict[str, Callable[[random.Random], int]] = {
    "sentences": lambda draw: min(max(int(draw.lognormvariate(3.0, 0.5)), 3), 66),
    "paragraphs": lambda draw: min(max(int(draw.lognormvariate(5.0, 0.6)), 16), 512),
    "both": lambda draw: _LENGTHS["paragraphs" if draw.random() < 0.1 else "sentences"](draw),
}
# The mean number of rows that wait when a batch begins.
_LOADS = {"light": 2, "medium": 16, "heavy": 120}


class _Frame:
    """Computes nothing, and sums the tokens of the frames that were computed."""

    tokens = 0

    def __init__(self, backbone: object, shape: Shape) -> None:
        self._shape = shape

    def load(self, rows: object) -> None:
        type(self).tokens += self._shape.tokens

    def run(self) -> None:
        """Nothing."""

    def read(self, rows: Sequence[object]) -> Sequence[object]:
        return rows


def _draw_batch(draw: random.Random, length: Callable[[random.Random], int], mean: int) -> list[int]:
    waiting, lengths = 1 + int(draw.expovariate(1 / mean)), list[int]()
    while waiting and sum(lengths) + 512 < _MAX_TOKENS:
        lengths.append(length(draw))
        waiting -= 1
    return lengths


def simulate(traffic: str, load: str, batches: int) -> dict[str, object]:
    """The figures of one traffic."""
    draw = random.Random(1)
    banks = [Bank.__new__(Bank) for _ in range(_NUM_BANKS)]
    weights = [1 / (1 + number) for number in range(_NUM_BANKS)]
    captured = list[object]()

    def capture(run: Callable[[], None]) -> Callable[[], None]:
        captured.append(run)
        return run

    replayed = counted = tokens = 0
    with patch.object(module, "Frame", _Frame):
        _Frame.tokens = 0
        graphs = Graphs(SimpleNamespace(), capture)  # type: ignore[arg-type]
        for number in range(batches):
            lengths = _draw_batch(draw, _LENGTHS[traffic], _LOADS[load])
            own = draw.choices(banks, weights, k=len(lengths))
            rows: list[Any] = [
                SimpleNamespace(num_inputs=size, body=bank, resident=SimpleNamespace(head=bank))
                for size, bank in zip(lengths, own, strict=True)
            ]
            found = graphs.compute(rows)
            if found is not None:
                tokens += sum(lengths)
            if number >= batches // 10:
                counted += 1
                replayed += found is not None
    share = round(replayed / counted, 3)
    return {
        "traffic": traffic, "load": load, "replayed": share, "captured": len(captured), "graphs": len(graphs),
        "tokens_computed": round(_Frame.tokens / max(tokens, 1), 3),
    }  # fmt: skip


def main() -> None:
    parser = create_parser(__doc__)
    parser.add_argument("--batches", type=int, default=5000, help="batches of each traffic")
    options = parser.parse_args()
    for traffic in _LENGTHS:
        for load in _LOADS:
            print(json.dumps(simulate(traffic, load, options.batches)))


if __name__ == "__main__":
    main()
