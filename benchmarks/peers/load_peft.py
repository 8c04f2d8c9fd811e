"""PEFT: one more LoRA adapter from its folder, beside those that are loaded already."""

import itertools
import sys
import tempfile
from pathlib import Path

import torch
from answering import answer
from peft import LoraConfig, get_peft_model
from transformers import BertModel

CHECKPOINT = sys.argv[2]
CONFIG = LoraConfig(r=8, lora_alpha=16, target_modules=["query", "value"], init_lora_weights=False)

torch.set_num_threads(1)
model = get_peft_model(BertModel.from_pretrained(CHECKPOINT), CONFIG, adapter_name="saved").eval()
numbers = itertools.count()

with tempfile.TemporaryDirectory() as folder:
    model.save_pretrained(folder)
    answer({"load": lambda: model.load_adapter(Path(folder) / "saved", adapter_name=f"lora-{next(numbers)}")})
