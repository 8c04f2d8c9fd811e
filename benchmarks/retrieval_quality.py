"""MiniLM on QNLI's questions and the sentences that answer them: the MRR of the backbone without an adapter, by pooled
vectors and by MaxSim of its tokens' states, and of artifacts.

    .venv/bin/python benchmarks/retrieval_quality.py DIR/qnli_small [F.safetensors ...]

`DIR/qnli_small` holds `train.jsonl.gz` and `validation.jsonl.gz` with `question`, `sentence` and `label`. The pairs
that belong together (label 0) are written to `runs`, and an artifact to measure is trained on them by

    peltier train --task qnli --task-type multi-vector-embedding --preset lora --epochs 1 \\
        --train runs/qnli-train.jsonl --validation runs/qnli-validation.jsonl --text-column question \\
        --text-column sentence

or with another type of embeddings. A question is compared with all sentences of the validation pairs.
"""

import gzip
import json
from collections.abc import Sequence
from pathlib import Path

import torch
from common.harness import Table, create_parser
from peltier_adapters.artifact.artifact import load_artifact
from peltier_adapters.spec.tasks import TaskSpec, TaskType
from peltier_backbone.backbone import Backbone
from peltier_backbone.load import load_backbone
from peltier_training.data.examples import Example, read_rows
from peltier_training.evaluate.adapters import evaluate, read_inputs

_BATCH_ROWS = 16


def write_pairs(source: Path, target: Path) -> None:
    """Write the rows of `source` whose sentence answers the question."""
    target.parent.mkdir(exist_ok=True)
    with gzip.open(source, "rt") as lines, target.open("w") as file:
        for row in map(json.loads, lines):
            if row["label"] == 0:
                print(json.dumps({key: row[key] for key in ("question", "sentence")}), file=file)


def measure_backbone(backbone: Backbone, kind: TaskType, examples: Sequence[Example]) -> dict[str, float]:
    """The metrics of the backbone's states, pooled by their mean for an `embedding`."""
    task = TaskSpec(type=kind, labels=(), inputs="single", max_length=backbone.config.max_tokens)
    rows, judge = read_inputs(backbone, task, examples)
    batches = (backbone.pack(rows[first : first + _BATCH_ROWS]) for first in range(0, len(rows), _BATCH_ROWS))
    states = [state for packed in batches for state in torch.split(backbone.bert(packed), list(packed.lengths))]
    return dict(judge([state.mean(0) for state in states] if kind == "embedding" else states).metrics)


@torch.inference_mode()
def main() -> None:
    parser = create_parser(__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("artifacts", type=Path, nargs="*")
    options = parser.parse_args()
    pairs = {part: Path(f"runs/qnli-{part}.jsonl") for part in ("train", "validation")}
    for part, path in pairs.items():
        write_pairs(options.data / f"{part}.jsonl.gz", path)
    examples = read_rows(pairs["validation"], ("question", "sentence"), None).examples
    backbone = load_backbone("minilm", device="cpu")
    table = Table(f"{len(examples)} questions", "mrr", "accuracy")
    found = {"backbone, pooled": measure_backbone(backbone, "embedding", examples)}
    found["backbone, MaxSim"] = measure_backbone(backbone, "multi-vector-embedding", examples)
    found |= {
        path.stem: evaluate(backbone, load_artifact(path, backbone), examples).metrics for path in options.artifacts
    }
    for name, metrics in found.items():
        table.row(name, *(f"{metrics[metric]:.4f}" for metric in ("mrr", "accuracy")))


if __name__ == "__main__":
    main()
