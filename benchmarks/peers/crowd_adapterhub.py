"""AdapterHub: batches of many adapters of one method by `BatchSplit`, while more and more are loaded."""

import itertools
import sys

import adapters
import torch
from adapters import CompacterConfig, LoRAConfig
from adapters.composition import BatchSplit
from answering import answer
from batches import ROWS, WIDTHS, draw_batch
from transformers import BertModel

METHOD, CHECKPOINT = sys.argv[1], sys.argv[2]
CONFIG = {"lora": LoRAConfig(r=8, alpha=16), "compacter": CompacterConfig(reduction_factor=16, phm_dim=4)}[METHOD]

torch.set_num_threads(1)
model = BertModel.from_pretrained(CHECKPOINT).eval()
adapters.init(model)
names: list[str] = []
turns = itertools.count()


def add() -> None:
    """One more, with random weights: that is several times as fast as from a folder."""
    names.append(f"{METHOD}-{len(names)}")
    model.add_adapter(names[-1], CONFIG)


@torch.inference_mode()
def run(width: int) -> None:
    """One forward of rows without padding."""
    rows = draw_batch(len(names), next(turns))
    model.set_active_adapters(BatchSplit(*(names[number] for number in rows), batch_sizes=list(rows.values())))
    model(input_ids=torch.full((ROWS, width), 1000), attention_mask=torch.ones(ROWS, width))


answer({"add": add} | {str(width): lambda w=width: run(w) for width in WIDTHS})
