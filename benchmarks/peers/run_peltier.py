"""Peltier, its bare backbone and plain transformers: 32 rows without padding, each with its own adapter."""

import sys
from pathlib import Path

import torch
from answering import answer
from batches import ALONE, METHODS, MIXES, ROWS, WIDTHS, most_rows, shares
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.residency.bank import Banks, Resident
from peltier_backbone.load import load_backbone
from peltier_backbone.machine.heap import keep_freed_memory
from peltier_backbone.text.packing import Encoded
from transformers import BertModel

sys.path.insert(0, str(Path(__file__).parents[1]))
from common.adapters import make_bytes
from common.stock import variant

DTYPE, CHECKPOINT = sys.argv[1], sys.argv[2]
PRESETS = {"bottleneck": "pfeiffer", "unipelt": "unipelt-apl"}

keep_freed_memory()
torch.set_num_threads(1)
exact = load_backbone(CHECKPOINT)
backbone = load_backbone(CHECKPOINT, dtype=DTYPE)
banks = Banks(backbone)
originals = {method: make_bytes(exact, PRESETS.get(method, method), 0) for method in METHODS}
residents = {
    method: [banks.add(read_artifact(variant(data, number), backbone)) for number in range(most_rows(method))]
    for method, data in originals.items()
}
plain = BertModel.from_pretrained(CHECKPOINT).eval()


def text(width: int) -> Encoded:
    """A row of so many tokens."""
    return Encoded((1000,) * width, (0,) * width)


@torch.inference_mode()
def bare(width: int) -> None:
    """Our backbone without adapters."""
    backbone.encode(backbone.pack([text(width)] * ROWS))


@torch.inference_mode()
def transformers(width: int) -> None:
    """Always float32: the reference of every ratio."""
    plain(input_ids=torch.full((ROWS, width), 1000), attention_mask=torch.ones(ROWS, width))


def run(chosen: list[Resident], width: int) -> None:
    """One forward with a row for each."""
    forward(backbone, [Row(text(width), resident) for resident in chosen])


def mixed(num_methods: int) -> list[Resident]:
    """As many of each method."""
    return [resident for method, rows in shares(num_methods).items() for resident in residents[method][:rows]]


chosen = {method: residents[method] for method in ALONE} | {f"{count} methods": mixed(count) for count in MIXES}
cases = {f"{width} {name}": lambda c=some, w=width: run(c, w) for width in WIDTHS for name, some in chosen.items()}
cases |= {f"{width} bare": lambda w=width: bare(w) for width in WIDTHS}
cases |= {f"{width} transformers": lambda w=width: transformers(w) for width in WIDTHS}
answer(cases)
