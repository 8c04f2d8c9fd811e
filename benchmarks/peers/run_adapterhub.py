"""AdapterHub: 32 adapters of one method by `BatchSplit`, and of four methods with one forward for each."""

import sys

import adapters
import torch
from adapters import CompacterConfig, LoRAConfig, PrefixTuningConfig, SeqBnConfig, UniPELTConfig
from adapters.composition import BatchSplit
from answering import answer
from transformers import BertModel

DTYPE, CHECKPOINT = getattr(torch, sys.argv[1]), sys.argv[2]
ROWS, SHAPES = 32, (64, 16)
METHODS = {
    "bottleneck": SeqBnConfig(reduction_factor=8, non_linearity="relu"),
    "lora": LoRAConfig(r=8, alpha=16),
    "compacter": CompacterConfig(reduction_factor=16, phm_dim=4),
    "unipelt": UniPELTConfig(
        PrefixTuningConfig(prefix_length=10, use_gating=True),
        SeqBnConfig(reduction_factor=8, use_gating=True),
        LoRAConfig(r=8, alpha=16, use_gating=True),
    ),
}


@torch.inference_mode()
def run(model: BertModel, setup: object, rows: int, width: int) -> None:
    """One forward of rows without padding, each with its own adapter."""
    model.set_active_adapters(setup)
    model(input_ids=torch.full((rows, width), 1000), attention_mask=torch.ones(rows, width))


torch.set_num_threads(1)
model = BertModel.from_pretrained(CHECKPOINT).eval()
adapters.init(model)
for method, config in METHODS.items():
    for number in range(ROWS):
        model.add_adapter(f"{method}-{number}", config)
model = model.to(DTYPE)


def split(method: str, rows: int) -> BatchSplit:
    """So many rows, each with an adapter of its own."""
    return BatchSplit(*(f"{method}-{number}" for number in range(rows)), batch_sizes=[1] * rows)


def four(width: int) -> None:
    """It refuses methods of two kinds in one batch, so they come one after another."""
    for method in METHODS:
        run(model, split(method, ROWS // len(METHODS)), ROWS // len(METHODS), width)


cases = {
    f"{width} {method}": lambda m=method, w=width: run(model, split(m, ROWS), ROWS, w)
    for width in SHAPES
    for method in METHODS
}
cases |= {f"{width} four": lambda w=width: four(w) for width in SHAPES}
answer(cases)
