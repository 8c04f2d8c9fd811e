"""PEFT: LoRA adapters by `adapter_names`, and loads. LoRA is the only one of the methods of which PEFT mixes several in
a batch. The first argument chooses the cases, see `batches.py`."""

import itertools
import sys
import tempfile
from pathlib import Path

import torch
from answering import Cases, answer
from batches import ROWS, WIDTHS, draw_batch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import BertModel

WHICH, KIND, CHECKPOINT = sys.argv[1:4]
CONFIG = LoraConfig(r=8, lora_alpha=16, target_modules=["query", "value"], init_lora_weights=False)

torch.set_num_threads(1)
base = BertModel.from_pretrained(CHECKPOINT)
models: list[PeftModel] = []
names: list[str] = []
numbers = itertools.count()


def add() -> None:
    """One more, with random weights: that is faster than from a folder. The first makes the model."""
    names.append(f"lora-{len(names)}")
    if models:
        models[0].add_adapter(names[-1], CONFIG)
    else:
        models.append(get_peft_model(base, CONFIG, adapter_name=names[0]).eval())


@torch.inference_mode()
def run(chosen: list[str], width: int) -> None:
    """One forward of rows without padding, each with the adapter of that name."""
    models[0](input_ids=torch.full((ROWS, width), 1000), attention_mask=torch.ones(ROWS, width), adapter_names=chosen)


def mixed_cases() -> Cases:
    for _ in range(ROWS):
        add()
    models[0].to(getattr(torch, KIND)).eval()
    return {f"{width} lora": lambda w=width: run(names, w) for width in WIDTHS}


def crowd_cases() -> Cases:
    def draw(width: int) -> None:
        drawn = draw_batch(len(names), next(numbers))
        run([names[number] for number, rows in drawn.items() for _ in range(rows)], width)

    return {"add": add} | {str(width): lambda w=width: draw(w) for width in WIDTHS}


def load_cases(folder: str) -> Cases:
    add()
    models[0].save_pretrained(folder)
    saved = Path(folder) / names[0]
    return {"load": lambda: models[0].load_adapter(saved, adapter_name=f"loaded-{next(numbers)}")}


with tempfile.TemporaryDirectory() as folder:
    answer({"mixed": mixed_cases, "crowd": crowd_cases, "loads": lambda: load_cases(folder)}[WHICH]())
