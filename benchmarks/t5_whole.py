"""The small T5 without adapters on a task of `grids/t5-*.toml`: as it is, and fully fine-tuned for other benchmarks.

    .venv/bin/python benchmarks/t5_whole.py benchmarks/grids/t5-e2e.toml --data DIR [--keep tuned]

It prints the metrics of the bare checkpoint, which answers the likeliest label or a generated text, and the accuracy of
the commonest training label. `--keep` trains the description's `full` and writes the checkpoint to a new folder, for
`peers/texts.py`. The sweeps themselves measure full fine-tuning and adapters.
"""

import shutil
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import torch
from common.harness import create_parser
from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_backbone.load import load_backbone
from peltier_training.baselines.learner import BaselineLearner
from peltier_training.config.preparation import prepare
from peltier_training.config.task import create_task
from peltier_training.data.data import write_examples
from peltier_training.data.examples import Example, read_examples
from peltier_training.data.labels import find_labels
from peltier_training.evaluate.texts import evaluate_texts
from peltier_training.sweep.description import create_description, read_description
from peltier_training.sweep.grid import Grid
from peltier_training.sweep.trial import Trial
from peltier_training.sweep.worker import draw
from peltier_training.train import learn


def measure_bare(trial: Trial, examples: Sequence[Example], validation: Sequence[Example]) -> dict[str, float]:
    """The metrics of the checkpoint without training, and those of the commonest label."""
    run = trial.run
    backbone = load_backbone(run.backbone, device=run.device)
    labels = find_labels(run.task_type, examples, run.data.labels)
    found = dict(evaluate_texts(backbone, create_task(run, backbone, labels, examples), None, validation).metrics)
    if run.task_type == "classification":
        commonest = Counter(example.label for example in examples).most_common(1)[0][0]
        found["majority"] = sum(example.label == commonest for example in validation) / len(validation)
    return found


def write_tuned(trial: Trial, examples: Sequence[Example], folder: Path) -> None:
    """Trains every weight on the rows that the sweep would draw, and writes the checkpoint."""
    run, data = trial.run, trial.run.data
    with TemporaryDirectory() as scratch:
        file = Path(scratch) / "train.jsonl"
        train, _ = draw(examples, trial.size, 0, trial.seed)
        write_examples(file, train, data.text_columns, data.label_column)
        learner = learn(prepare(replace(run, data=replace(data, train=file), directory=Path(scratch)))).learner
    assert isinstance(learner, BaselineLearner)
    unchanged = shutil.ignore_patterns("*.safetensors*", "*.bin")
    shutil.copytree(find_checkpoint(run.backbone), folder, ignore=unchanged)
    learner.tuning.model.body.tuned().save_pretrained(folder)


def main() -> None:
    parser = create_parser(__doc__)
    parser.add_argument("description", type=Path, help="a sweep with one task and the method full")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--keep", type=Path, help="a new folder for the fine-tuned checkpoint")
    options = parser.parse_args()
    torch.set_num_threads(1)
    trials = Grid(create_description(read_description(options.description)), options.data, Path()).trials()
    trial = next(one for one in trials if one.method == "full")
    data = trial.run.data
    examples, validation = (
        read_examples(path, data.text_columns, data.label_column) for path in (data.train, data.validation)
    )
    for name, value in measure_bare(trial, examples, validation).items():
        print(f"bare, {name:12}{value:8.4f}", flush=True)
    if options.keep is not None:
        write_tuned(trial, examples, options.keep)


if __name__ == "__main__":
    main()
