"""Batches of an adapter, of the series of sizes in a file, as `peltier serve` computes them, or with oneDNN's products.

sized_batches.py BACKBONE PRESET DTYPE native|onednn FILE
"""

import json
import os
import sys
from pathlib import Path

import torch
from answering import answer
from common.adapters import make_artifact
from common.onednn import OneDnnLinear
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.residency.bank import Banks
from peltier_backbone import load
from peltier_backbone.machine.heap import keep_freed_memory
from peltier_backbone.text.packing import Encoded

BACKBONE, PRESET, DTYPE, PRODUCTS = sys.argv[1:5]
ROW_TOKENS = 128

if PRODUCTS == "onednn":
    # As many prepared products as both libraries keep by default.
    os.environ.update(ONEDNN_PRIMITIVE_CACHE_CAPACITY="1024", LRU_CACHE_CAPACITY="1024")
    load.choose_linear = lambda *_: OneDnnLinear
keep_freed_memory()
torch.set_num_threads(1)
backbone = load.load_backbone(BACKBONE, dtype=DTYPE)
resident = Banks(backbone).add(make_artifact(backbone, PRESET, 0))


def compute(sizes: list[int]) -> None:
    """A batch of each number of tokens."""
    for tokens in sizes:
        lengths = [ROW_TOKENS] * (tokens // ROW_TOKENS) + [tokens % ROW_TOKENS] * bool(tokens % ROW_TOKENS)
        forward(backbone, [Row(Encoded((100,) * length, (0,) * length), resident) for length in lengths])


series: dict[str, list[int]] = json.loads(Path(sys.argv[5]).read_text())
answer({name: lambda sizes=sizes: compute(sizes) for name, sizes in series.items()})
