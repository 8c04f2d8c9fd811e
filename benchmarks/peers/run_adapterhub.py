"""AdapterHub: 32 adapters of one method by `BatchSplit`, and of several methods with one forward for each."""

import sys

import adapters
import torch
from adapters import (
    CompacterConfig,
    DoubleSeqBnConfig,
    LoRAConfig,
    PrefixTuningConfig,
    SeqBnConfig,
    UniPELTConfig,
)
from adapters.composition import BatchSplit
from answering import answer
from batches import ALONE, MIXES, ROWS, WIDTHS, most_rows, shares
from transformers import BertModel

DTYPE, CHECKPOINT = getattr(torch, sys.argv[1]), sys.argv[2]
# A flat prefix is what `eject_prefix_tuning` leaves of a trained one. It has neither AdaMix nor BitFit.
CONFIGS = {
    "lora": LoRAConfig(r=8, alpha=16),
    "bottleneck": SeqBnConfig(reduction_factor=8, non_linearity="relu"),
    "compacter": CompacterConfig(reduction_factor=16, phm_dim=4),
    "unipelt": UniPELTConfig(
        PrefixTuningConfig(flat=True, prefix_length=10, use_gating=True),
        SeqBnConfig(reduction_factor=8, use_gating=True),
        LoRAConfig(r=8, alpha=16, use_gating=True),
    ),
    "houlsby": DoubleSeqBnConfig(reduction_factor=8),
    "prefix": PrefixTuningConfig(flat=True, prefix_length=10),
}

torch.set_num_threads(1)
model = BertModel.from_pretrained(CHECKPOINT).eval()
adapters.init(model)
for method, config in CONFIGS.items():
    for number in range(most_rows(method)):
        model.add_adapter(f"{method}-{number}", config)
model = model.to(DTYPE)


@torch.inference_mode()
def run(method: str, rows: int, width: int) -> None:
    """One forward of rows without padding, each with an adapter of its own."""
    names = (f"{method}-{number}" for number in range(rows))
    model.set_active_adapters(BatchSplit(*names, batch_sizes=[1] * rows))
    model(input_ids=torch.full((rows, width), 1000), attention_mask=torch.ones(rows, width))


def mixed(num_methods: int, width: int) -> None:
    """AdapterHub fails with any two of these methods in one batch, so they run one after another."""
    for method, rows in shares(num_methods).items():
        run(method, rows, width)


cases = {f"{width} {method}": lambda m=method, w=width: run(m, ROWS, w) for width in WIDTHS for method in ALONE}
cases |= {
    f"{width} {count} methods": lambda n=count, w=width: mixed(n, w)
    for width in WIDTHS
    for count in MIXES
    if count <= len(CONFIGS)
}
answer(cases)
