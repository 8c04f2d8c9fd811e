"""PEFT: batches of many LoRA adapters by `adapter_names`, while more and more are loaded."""

import itertools
import sys

import torch
from answering import answer
from batches import ROWS, WIDTHS, draw_batch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import BertModel

CHECKPOINT = sys.argv[2]
CONFIG = LoraConfig(r=8, lora_alpha=16, target_modules=["query", "value"], init_lora_weights=False)

torch.set_num_threads(1)
base = BertModel.from_pretrained(CHECKPOINT)
models: list[PeftModel] = []
names: list[str] = []
turns = itertools.count()


def add() -> None:
    """One more, with random weights: that is faster than from a folder. The first makes the model."""
    names.append(f"lora-{len(names)}")
    if models:
        models[0].add_adapter(names[-1], CONFIG)
    else:
        models.append(get_peft_model(base, CONFIG, adapter_name=names[0]).eval())


@torch.inference_mode()
def run(width: int) -> None:
    """One forward of rows without padding."""
    drawn = [names[number] for number, rows in draw_batch(len(names), next(turns)).items() for _ in range(rows)]
    models[0](input_ids=torch.full((ROWS, width), 1000), attention_mask=torch.ones(ROWS, width), adapter_names=drawn)


answer({"add": add} | {str(width): lambda w=width: run(w) for width in WIDTHS})
