"""Peltier, its bare backbone and plain transformers: batches, and loads. The first argument chooses the cases, see
`batches.py`."""

import itertools
import sys
import tempfile
from pathlib import Path

import torch
from answering import Cases, answer
from batches import ALONE, METHODS, MIXES, ROWS, WIDTHS, draw_batch, most_rows, shares
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.residency.bank import Banks, Resident
from peltier_backbone.load import load_backbone
from peltier_backbone.machine.heap import keep_freed_memory
from peltier_backbone.text.packing import Encoded
from transformers import BertModel

sys.path.insert(0, str(Path(__file__).parents[1]))
from common.adapters import make_bytes
from common.stock import variant

WHICH, KIND, CHECKPOINT = sys.argv[1:4]
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


def run(chosen: list[Resident], width: int) -> None:
    """One forward without padding, with a row for each."""
    forward(backbone, [Row(make_text(width), resident) for resident in chosen])


def make_text(width: int) -> Encoded:
    """A row of `width` tokens."""
    return Encoded((1000,) * width, (0,) * width)


def add(data: bytes, number: int) -> Resident:
    """Brings a variant of an artifact to the banks."""
    return banks.add(read_artifact(variant(data, number), backbone))


def mixed_cases() -> Cases:
    originals = {method: make_bytes(exact, PRESETS.get(method, method), 0) for method in METHODS}
    residents = {method: [add(data, number) for number in range(most_rows(method))]
                 for method, data in originals.items()}  # fmt: skip
    chosen = {method: residents[method] for method in ALONE}
    for count in MIXES:
        chosen[f"{count} methods"] = [one for method, rows in shares(count).items() for one in residents[method][:rows]]
    cases = {f"{width} {name}": lambda c=some, w=width: run(c, w) for width in WIDTHS for name, some in chosen.items()}
    return cases | plain_cases() | {f"{width} bare": lambda w=width: run_bare(w) for width in WIDTHS}


def crowd_cases() -> Cases:
    original, residents, turns = make_bytes(exact, KIND, 0), list[Resident](), itertools.count()

    def draw(width: int) -> None:
        drawn = draw_batch(len(residents), next(turns))
        run([residents[number] for number, rows in drawn.items() for _ in range(rows)], width)

    cases: Cases = {"add": lambda: residents.append(add(original, len(residents)))}
    return cases | plain_cases() | {str(width): lambda w=width: draw(w) for width in WIDTHS}


def load_cases(folder: str) -> Cases:
    """A load reads, verifies and checks the file, and brings its tensors to a slot of their own."""
    path, loaded = Path(folder) / f"{KIND}.safetensors", list[Resident]()
    path.write_bytes(make_bytes(exact, KIND, 0))
    return {"load": lambda: loaded.append(banks.add(read_artifact(path.read_bytes(), backbone)))}


with tempfile.TemporaryDirectory() as folder:
    answer({"mixed": mixed_cases, "crowd": crowd_cases, "loads": lambda: load_cases(folder)}[WHICH]())
