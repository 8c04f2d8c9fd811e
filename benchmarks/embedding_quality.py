"""MiniLM on STS-B: Spearman's correlation of the backbone without an adapter, by Peltier and by sentence-transformers,
and of artifacts.

    .venv/bin/python benchmarks/embedding_quality.py DIR/stsb [F.safetensors ...]

`DIR/stsb` holds `validation.jsonl.gz` and `test.jsonl.gz` with `sentence1`, `sentence2` and `label`. An artifact to
measure is trained by

    peltier train --task sts --task-type embedding --preset lora --train DIR/stsb/train.jsonl.gz \\
        --validation DIR/stsb/validation.jsonl.gz --text-column sentence1 --text-column sentence2 --epochs 4

Both libraries run in processes of their own, as in `peers/`; the first run installs sentence-transformers.
"""

import json
import tempfile
from pathlib import Path

import numpy as np
from common.harness import Table, create_parser
from peers.contender import Contender
from peltier_adapters.artifact.artifact import load_artifact
from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_backbone.load import load_backbone
from peltier_server.inference.backbone_task import BackboneTask
from peltier_training.data.examples import Example, inputs_of, read_examples
from peltier_training.evaluate.adapters import evaluate
from peltier_training.evaluate.metrics import embedding

# The scripts of `peers/`, and the library that each needs beside the environment's own.
SCRIPTS = {"peltier": None, "sentence-transformers": "sentence-transformers"}


def encode(library: str, texts: list[str]) -> np.ndarray:
    """The embeddings of the backbone without an adapter, [texts, size]."""
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "texts.json").write_text(json.dumps(texts))
        script = f"embed_{library.replace('-', '_')}.py"
        with Contender(library, script, SCRIPTS[library], str(find_checkpoint("minilm")), folder) as contender:
            contender.seconds("save")
        return np.load(Path(folder) / f"{library}.npy")


def spearman(vectors: np.ndarray, examples: list[Example]) -> float:
    """Of the embeddings of all texts of pairs, [2 pairs, size]."""
    scores = np.array([float(example.label) for example in examples])
    return embedding(vectors.reshape(len(examples), 2, -1), scores)["spearman"]


def main() -> None:
    parser = create_parser(__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("artifacts", type=Path, nargs="*")
    options = parser.parse_args()
    backbone = load_backbone("minilm", device="cpu")
    task = BackboneTask.of(backbone).entry.task
    table = Table("rows", "sentence-transformers", "backbone", *(path.stem for path in options.artifacts))
    for part in ("validation", "test"):
        examples = read_examples(options.data / f"{part}.jsonl.gz", ("sentence1", "sentence2"), "label")
        texts = [str(text) for text in inputs_of(task, examples)]
        found = [spearman(encode(library, texts), examples) for library in ("sentence-transformers", "peltier")]
        assert abs(found[0] - found[1]) < 1e-3, found
        loaded = (load_artifact(path, backbone) for path in options.artifacts)
        found += [evaluate(backbone, artifact, examples).metrics["spearman"] for artifact in loaded]
        table.row(f"{part}, {len(examples)}", *(f"{value:.4f}" for value in found))


if __name__ == "__main__":
    main()
