"""PEFT: 32 LoRA adapters by `adapter_names`. LoRA is the only one of these methods of which PEFT mixes several in a
batch.
"""

import sys

import torch
from answering import answer
from batches import ROWS, WIDTHS
from peft import LoraConfig, get_peft_model
from transformers import BertModel

DTYPE, CHECKPOINT = getattr(torch, sys.argv[1]), sys.argv[2]
CONFIG = LoraConfig(r=8, lora_alpha=16, target_modules=["query", "value"], init_lora_weights=False)

torch.set_num_threads(1)
model = get_peft_model(BertModel.from_pretrained(CHECKPOINT), CONFIG, adapter_name="lora-0")
for number in range(1, ROWS):
    model.add_adapter(f"lora-{number}", CONFIG)
model = model.to(DTYPE).eval()


@torch.inference_mode()
def run(width: int) -> None:
    """One forward of rows without padding, each with its own adapter."""
    names = [f"lora-{number}" for number in range(ROWS)]
    model(input_ids=torch.full((ROWS, width), 1000), attention_mask=torch.ones(ROWS, width), adapter_names=names)


answer({f"{width} lora": lambda w=width: run(w) for width in WIDTHS})
