"""MiniLM on STS-B: Spearman's correlation of the backbone without an adapter, by Peltier and by sentence-transformers,
and of artifacts.

    .venv/bin/python benchmarks/embedding_quality.py DIR/stsb [F.safetensors ...]

`DIR/stsb` holds `validation.jsonl.gz` and `test.jsonl.gz` with `sentence1`, `sentence2` and `label`. An artifact to
measure is trained by

    peltier train --task sts --task-type embedding --preset lora --train DIR/stsb/train.jsonl.gz \\
        --validation DIR/stsb/validation.jsonl.gz --text-column sentence1 --text-column sentence2 --epochs 4

sentence-transformers runs in its own process, as in `peers/`; the first run installs it.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from common.libraries import installed
from peltier_adapters.artifact.artifact import load_artifact
from peltier_adapters.batch.forward import forward
from peltier_adapters.batch.row import Row
from peltier_adapters.inputs import encode_input
from peltier_adapters.residency.bank import Banks
from peltier_backbone.backbone import Backbone
from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_backbone.load import load_backbone
from peltier_server.inference.backbone_task import BackboneTask
from peltier_training.data.examples import Example, read_examples
from peltier_training.data.pairs import inputs_of
from peltier_training.evaluate.embedding_metrics import embedding
from peltier_training.evaluate.examination import evaluate
from rich.console import Console
from rich.table import Table

_BATCH_ROWS = 64
_RIVAL = """
import json, sys
import numpy as np
from sentence_transformers import SentenceTransformer
model = SentenceTransformer(sys.argv[1], device="cpu")
np.save(sys.argv[3], model.encode(json.loads(open(sys.argv[2]).read()), show_progress_bar=False))
"""


def bare(backbone: Backbone, texts: list[str]) -> np.ndarray:
    """The embeddings of the task `_backbone`, [texts, size]."""
    own = BackboneTask.of(backbone)
    resident, task = Banks(backbone).add(own.artifact), own.entry.task
    rows = [Row(encode_input(backbone, task, text), resident, bare=True) for text in texts]
    batches = (rows[first : first + _BATCH_ROWS] for first in range(0, len(rows), _BATCH_ROWS))
    return torch.stack([output.logits for batch in batches for output in forward(backbone, batch)]).numpy()


def rival(texts: list[str]) -> np.ndarray:
    """The embeddings of sentence-transformers."""
    with tempfile.TemporaryDirectory() as folder:
        given, found = Path(folder) / "texts.json", Path(folder) / "vectors.npy"
        given.write_text(json.dumps(texts))
        environment = os.environ | {"PYTHONPATH": str(installed("sentence-transformers")), "HF_HUB_OFFLINE": "1"}
        command = [sys.executable, "-c", _RIVAL, str(find_checkpoint("minilm")), str(given), str(found)]
        subprocess.run(command, env=environment, check=True, stderr=subprocess.DEVNULL)
        return np.load(found)


def spearman(vectors: np.ndarray, examples: list[Example]) -> float:
    """Of the embeddings of all texts of pairs, [2 pairs, size]."""
    scores = np.array([float(example.label) for example in examples])
    return embedding(vectors.reshape(len(examples), 2, -1), scores)["spearman"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("artifacts", type=Path, nargs="*")
    options = parser.parse_args()
    backbone = load_backbone("minilm", device="cpu")
    task = BackboneTask.of(backbone).entry.task
    table = Table("rows", "sentence-transformers", "backbone", *(path.stem for path in options.artifacts))
    for part in ("validation", "test"):
        examples = read_examples(options.data / f"{part}.jsonl.gz", ("sentence1", "sentence2"), "label")
        texts = [str(text) for text in inputs_of(task, examples)]
        found = [spearman(rival(texts), examples), spearman(bare(backbone, texts), examples)]
        assert abs(found[0] - found[1]) < 1e-3, found
        loaded = (load_artifact(path, backbone) for path in options.artifacts)
        found += [evaluate(backbone, artifact, examples)["spearman"] for artifact in loaded]
        table.add_row(f"{part}, {len(examples)}", *(f"{value:.4f}" for value in found))
    Console(width=100).print(table)


if __name__ == "__main__":
    main()
