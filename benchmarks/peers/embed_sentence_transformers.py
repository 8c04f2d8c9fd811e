"""sentence-transformers: `encode` of a list of sentences, on one thread. It sorts them by length."""

import json
import sys
from pathlib import Path

import numpy as np
import torch
from answering import answer
from sentence_transformers import SentenceTransformer

CHECKPOINT, FOLDER = sys.argv[1], Path(sys.argv[2])

torch.set_num_threads(1)
texts = json.loads((FOLDER / "texts.json").read_text())
model = SentenceTransformer(CHECKPOINT, device="cpu")


def encode() -> np.ndarray:
    """[texts, size], in the order of the texts."""
    return model.encode(texts, show_progress_bar=False)


answer({"encode": encode, "save": lambda: np.save(FOLDER / "sentence-transformers.npy", encode())})
