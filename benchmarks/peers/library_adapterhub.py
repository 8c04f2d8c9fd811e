"""AdapterHub: batches by `BatchSplit`, and loads. The first argument chooses the cases, see `batches.py`."""

import itertools
import sys
import tempfile

import adapters
import torch
from adapters import CompacterConfig, DoubleSeqBnConfig, LoRAConfig, PrefixTuningConfig, SeqBnConfig, UniPELTConfig
from adapters.composition import BatchSplit
from answering import Cases, answer
from batches import ALONE, MIXES, ROWS, WIDTHS, draw_batch, most_rows, shares
from transformers import BertModel

WHICH, KIND, CHECKPOINT = sys.argv[1:4]
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
numbers = itertools.count()


@torch.inference_mode()
def run(rows: dict[str, int], width: int) -> None:
    """One forward without padding. `rows` has the number of rows of each adapter."""
    model.set_active_adapters(BatchSplit(*rows, batch_sizes=list(rows.values())))
    count = sum(rows.values())
    model(input_ids=torch.full((count, width), 1000), attention_mask=torch.ones(count, width))


def run_distinct(method: str, count: int, width: int) -> None:
    """Each row has an adapter of its own."""
    run({f"{method}-{number}": 1 for number in range(count)}, width)


def run_several(num_methods: int, width: int) -> None:
    """AdapterHub fails with any two of these methods in one batch, so they run one after another."""
    for method, count in shares(num_methods).items():
        run_distinct(method, count, width)


def mixed_cases() -> Cases:
    for method, config in CONFIGS.items():
        for number in range(most_rows(method)):
            model.add_adapter(f"{method}-{number}", config)
    model.to(getattr(torch, KIND))
    cases = {f"{width} {method}": lambda m=method, w=width: run_distinct(m, ROWS, w)
             for width in WIDTHS for method in ALONE}  # fmt: skip
    counts = [count for count in MIXES if count <= len(CONFIGS)]
    return cases | {f"{width} {count} methods": lambda n=count, w=width: run_several(n, w)
                    for width in WIDTHS for count in counts}  # fmt: skip


def crowd_cases() -> Cases:
    names: list[str] = []

    def add() -> None:
        """With random weights: that is several times as fast as from a folder."""
        names.append(f"{KIND}-{len(names)}")
        model.add_adapter(names[-1], CONFIGS[KIND])

    def draw(width: int) -> None:
        run({names[number]: rows for number, rows in draw_batch(len(names), next(numbers)).items()}, width)

    return {"add": add} | {str(width): lambda w=width: draw(w) for width in WIDTHS}


def load_cases(folder: str) -> Cases:
    model.add_adapter("saved", CONFIGS[KIND])
    model.save_adapter(folder, "saved")
    model.delete_adapter("saved")
    return {"load": lambda: model.load_adapter(folder, load_as=f"{KIND}-{next(numbers)}")}


with tempfile.TemporaryDirectory() as folder:
    answer({"mixed": mixed_cases, "crowd": crowd_cases, "loads": lambda: load_cases(folder)}[WHICH]())
