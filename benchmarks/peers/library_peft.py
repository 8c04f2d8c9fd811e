"""PEFT: LoRA adapters by `adapter_names`, and loads. LoRA is the only one of the methods of which PEFT mixes several in
a batch."""

import itertools
from pathlib import Path

import torch
from answering import Cases
from batches import CHECKPOINT, KIND, ROWS, answer_set, crowd_cases, mixed_cases
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import BertModel

CONFIG = LoraConfig(r=8, lora_alpha=16, target_modules=["query", "value"], init_lora_weights=False)

torch.set_num_threads(1)
base = BertModel.from_pretrained(CHECKPOINT)
models: list[PeftModel] = []


def add(number: int) -> str:
    """With random weights: that is faster than from a folder. The first makes the model."""
    name = f"lora-{number}"
    if models:
        models[0].add_adapter(name, CONFIG)
    else:
        models.append(get_peft_model(base, CONFIG, adapter_name=name).eval())
    return name


@torch.inference_mode()
def run(names: list[str], width: int) -> None:
    """One forward without padding."""
    models[0](input_ids=torch.full((ROWS, width), 1000), attention_mask=torch.ones(ROWS, width), adapter_names=names)


def mixed() -> Cases:
    names = list(map(add, range(ROWS)))  # whichever methods are asked for
    models[0].to(getattr(torch, KIND)).eval()
    return mixed_cases({"lora": names}, run)


def loads(folder: str) -> Cases:
    saved, numbers = Path(folder) / add(0), itertools.count()
    models[0].save_pretrained(folder)
    return {"load": lambda: models[0].load_adapter(saved, adapter_name=f"loaded-{next(numbers)}")}


answer_set(mixed, lambda: crowd_cases(add, run), loads)
