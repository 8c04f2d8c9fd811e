"""AdapterHub: batches by `BatchSplit`, and loads."""

import itertools
from collections import Counter

import adapters
import torch
from adapters import CompacterConfig, DoubleSeqBnConfig, LoRAConfig, PrefixTuningConfig, SeqBnConfig, UniPELTConfig
from adapters.composition import BatchSplit
from answering import Cases
from batches import CHECKPOINT, KIND, answer_set, asked, crowd_cases, mixed_cases, most_rows
from transformers import BertModel

# `eject_prefix_tuning` makes a flat prefix of a trained one. The library has no AdaMix and no BitFit.
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


@torch.inference_mode()
def run(names: list[str], width: int) -> None:
    """One forward without padding."""
    rows = Counter(names)
    model.set_active_adapters(BatchSplit(*rows, batch_sizes=list(rows.values())))
    model(input_ids=torch.full((len(names), width), 1000), attention_mask=torch.ones(len(names), width))


def add(method: str, number: int) -> str:
    """With random weights: that is several times as fast as from a folder."""
    model.add_adapter(f"{method}-{number}", CONFIGS[method])
    return f"{method}-{number}"


def mixed() -> Cases:
    """AdapterHub fails with any two of these methods in one batch, so they run one after another."""
    names = {method: [add(method, number) for number in range(most_rows(method))] for method in asked(CONFIGS)}
    model.to(getattr(torch, KIND))
    return mixed_cases(names, run, apart=True)


def loads(folder: str) -> Cases:
    model.add_adapter("saved", CONFIGS[KIND])
    model.save_adapter(folder, "saved")
    model.delete_adapter("saved")
    numbers = itertools.count()
    return {"load": lambda: model.load_adapter(folder, load_as=f"{KIND}-{next(numbers)}")}


answer_set(mixed, lambda: crowd_cases(lambda number: add(KIND, number), run), loads)
