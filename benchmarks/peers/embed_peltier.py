"""Peltier: embeddings of a list of sentences by the backbone, on one thread, through the engine of the server."""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from answering import answer
from peltier_adapters.answers import embeddings
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.inputs import encode_input
from peltier_adapters.residency.bank import Banks
from peltier_backbone.load import load_backbone
from peltier_server.inference.backbone_task import BackboneTask

CHECKPOINT, FOLDER = sys.argv[1], Path(sys.argv[2])
BATCH_ROWS = 32

torch.set_num_threads(1)
texts = json.loads((FOLDER / "texts.json").read_text())
backbone = load_backbone(CHECKPOINT, device="cpu")
own = BackboneTask.of(backbone)
resident, task = Banks(backbone).add(own.artifact), own.entry.task


def encode() -> np.ndarray:
    """[texts, size], in the order of the texts."""
    rows = [Row(encode_input(backbone, task, text), resident, bare=True) for text in texts]
    order = sorted(range(len(rows)), key=lambda number: len(rows[number].encoded))
    found = torch.empty(len(rows), own.entry.num_dimensions)
    for first in range(0, len(order), BATCH_ROWS):
        batch = order[first : first + BATCH_ROWS]
        outputs = forward(backbone, [rows[number] for number in batch])
        found[batch] = torch.stack([output.logits for output in outputs])
    return embeddings.read(task, found).numpy()


answer({"encode": encode, "save": lambda: np.save(FOLDER / "peltier.npy", encode())})
