"""Peltier: one more adapter from its file to its bank, beside those that are loaded already."""

import sys
import tempfile
from pathlib import Path

import torch
from answering import answer
from peltier_adapters.artifact.artifact import read_artifact
from peltier_adapters.residency.bank import Banks, Resident
from peltier_backbone.load import load_backbone

sys.path.insert(0, str(Path(__file__).parents[1]))
from common.adapters import make_bytes

METHOD, CHECKPOINT = sys.argv[1], sys.argv[2]

torch.set_num_threads(1)
backbone = load_backbone(CHECKPOINT)
banks = Banks(backbone)
loaded: list[Resident] = []


def load(file: Path) -> None:
    """Reads, verifies and checks the file, and brings its tensors to a slot of their own."""
    loaded.append(banks.add(read_artifact(file.read_bytes(), backbone)))


with tempfile.TemporaryDirectory() as folder:
    path = Path(folder) / f"{METHOD}.safetensors"
    path.write_bytes(make_bytes(backbone, METHOD, 0))
    answer({"load": lambda: load(path)})
