"""AdapterHub: one more adapter from its folder, beside those that are loaded already."""

import itertools
import sys
import tempfile

import adapters
import torch
from adapters import CompacterConfig, LoRAConfig
from answering import answer
from transformers import BertModel

METHOD, CHECKPOINT = sys.argv[1], sys.argv[2]
METHODS = {"lora": LoRAConfig(r=8, alpha=16), "compacter": CompacterConfig(reduction_factor=16, phm_dim=4)}

torch.set_num_threads(1)
model = BertModel.from_pretrained(CHECKPOINT).eval()
adapters.init(model)
numbers = itertools.count()

with tempfile.TemporaryDirectory() as folder:
    model.add_adapter("saved", METHODS[METHOD])
    model.save_adapter(folder, "saved")
    model.delete_adapter("saved")
    answer({"load": lambda: model.load_adapter(folder, load_as=f"{METHOD}-{next(numbers)}")})
