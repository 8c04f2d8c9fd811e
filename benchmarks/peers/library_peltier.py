"""Peltier, its bare backbone and plain transformers: batches, and loads."""

from pathlib import Path

import torch
from answering import Cases
from batches import (
    CHECKPOINT,
    KIND,
    METHODS,
    ROWS,
    WHICH,
    WIDTHS,
    answer_set,
    asked,
    crowd_cases,
    mixed_cases,
    most_rows,
)
from common.adapters import make_bytes
from common.serving import variant
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.residency.bank import Banks, Resident
from peltier_backbone.load import load_backbone
from peltier_backbone.machine.heap import keep_freed_memory
from peltier_backbone.text.packing import Encoded
from transformers import BertModel

PRESETS = {"bottleneck": "pfeiffer", "unipelt": "unipelt-apl"}

keep_freed_memory()
torch.set_num_threads(1)
exact = load_backbone(CHECKPOINT)
backbone = load_backbone(CHECKPOINT, dtype=KIND) if WHICH == "mixed" else exact
banks = Banks(backbone)


def plain_cases() -> Cases:
    """Plain transformers without adapters, always in float32: the reference of every ratio."""
    model = BertModel.from_pretrained(CHECKPOINT).eval()

    @torch.inference_mode()
    def run(width: int) -> None:
        model(input_ids=torch.full((ROWS, width), 1000), attention_mask=torch.ones(ROWS, width))

    return {f"{width} transformers": lambda w=width: run(w) for width in WIDTHS}


@torch.inference_mode()
def run_bare(width: int) -> None:
    """Our backbone without adapters."""
    backbone.encode(backbone.pack([make_text(width)] * ROWS))


def run(residents: list[Resident], width: int) -> None:
    """One forward without padding."""
    forward(backbone, [Row(make_text(width), resident) for resident in residents])


def make_text(width: int) -> Encoded:
    """A row of `width` tokens."""
    return Encoded((1000,) * width, (0,) * width)


def add(data: bytes, number: int) -> Resident:
    """Brings a variant of an artifact to the banks."""
    return banks.add(read_artifact(variant(data, number), backbone))


def mixed() -> Cases:
    originals = {method: make_bytes(exact, PRESETS.get(method, method), 0) for method in asked(METHODS)}
    residents = {
        method: [add(data, number) for number in range(most_rows(method))] for method, data in originals.items()
    }
    bare = {f"{width} bare": lambda w=width: run_bare(w) for width in WIDTHS}
    return mixed_cases(residents, run) | plain_cases() | bare


def crowd() -> Cases:
    original = make_bytes(exact, KIND, 0)
    return crowd_cases(lambda number: add(original, number), run) | plain_cases()


def loads(folder: str) -> Cases:
    """A load reads, verifies and checks the file, and brings its tensors to a slot of their own."""
    path, loaded = Path(folder) / f"{KIND}.safetensors", list[Resident]()
    path.write_bytes(make_bytes(exact, KIND, 0))
    return {"load": lambda: loaded.append(banks.add(read_artifact(path.read_bytes(), backbone)))}


answer_set(mixed, crowd, loads)
