"""Peltier: batches of many adapters of one method, while more and more are loaded; and plain transformers."""

import itertools
import sys
from pathlib import Path

import torch
from answering import answer
from batches import ROWS, WIDTHS, draw_batch
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

METHOD, CHECKPOINT = sys.argv[1], sys.argv[2]

keep_freed_memory()
torch.set_num_threads(1)
backbone = load_backbone(CHECKPOINT)
banks = Banks(backbone)
original = make_bytes(backbone, METHOD, 0)
residents: list[Resident] = []
turns = itertools.count()
plain = BertModel.from_pretrained(CHECKPOINT).eval()


def add() -> None:
    """One more, from an artifact of its own."""
    residents.append(banks.add(read_artifact(variant(original, len(residents)), backbone)))


def run(width: int) -> None:
    """One forward of rows without padding."""
    text = Encoded((1000,) * width, (0,) * width)
    drawn = draw_batch(len(residents), next(turns))
    forward(backbone, [Row(text, residents[number]) for number, rows in drawn.items() for _ in range(rows)])


@torch.inference_mode()
def transformers(width: int) -> None:
    """Without adapters."""
    plain(input_ids=torch.full((ROWS, width), 1000), attention_mask=torch.ones(ROWS, width))


cases = {str(width): lambda w=width: run(w) for width in WIDTHS}
answer({"add": add} | cases | {f"{width} transformers": lambda w=width: transformers(w) for width in WIDTHS})
