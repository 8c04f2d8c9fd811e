"""Entities of WNUT-17 on the test rows, for the best settings of each method in a sweep of `grids/entities.toml`.

    .venv/bin/peltier sweep benchmarks/grids/entities.toml --data DIR --output runs/entities
    .venv/bin/python benchmarks/entities.py --data DIR [--results runs/entities]

The validation rows choose the settings, and the test rows choose nothing. An adapter is measured from its artifact in
float32. Full fine-tuning leaves none, so it is trained again with its best settings.
"""

import tempfile
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean

import torch
from common.harness import Table, create_parser
from common.sweeps import artifact_path, mean_metric, measure_artifact, read_results, read_rows
from peltier_backbone.load import load_backbone
from peltier_training.data.data import read_file
from peltier_training.sweep.description import create_description, read_description
from peltier_training.sweep.grid import Grid
from peltier_training.sweep.trial import TrialResult
from peltier_training.train import train

SWEEP = Path(__file__).with_name("grids") / "entities.toml"


def best_settings(results: Sequence[TrialResult]) -> list[TrialResult]:
    """The trials, one for each seed, of the settings with the best mean on the validation rows."""
    groups = defaultdict(list)
    for one in results:
        numbers = {name: value for name, value in one.hyperparameters.items() if name != "seed"}
        groups[str((numbers, one.settings))].append(one)
    return max(groups.values(), key=mean_metric)


def measure_on_test(result: TrialResult, data: Path, folder: Path) -> float:
    """The F1 of a trial on the test rows."""
    test = data / "wnut17/test.jsonl.gz"
    if result.method != "full":
        artifact = artifact_path(folder, result)
        return measure_artifact(load_backbone("minilm"), artifact, read_rows(artifact, [test]))
    description = read_description(SWEEP)
    with tempfile.TemporaryDirectory() as scratch:
        trials = Grid(create_description(description), data, Path(scratch)).trials()
        run = next(one.run for one in trials if one.method == result.method)
        numbers = {name: result.hyperparameters[name] for name in ("epochs", "learning_rate", "batch_size", "seed")}
        run = replace(run, hyperparameters=replace(run.hyperparameters, **numbers))
        rows = read_file(run.data, test, run.task_type, run.data.labels).examples
        return train(run).learner.evaluate(rows).metrics["f1"]


def main() -> None:
    parser = create_parser(__doc__)
    parser.add_argument("--data", type=Path, required=True, help="the folder that has wnut17")
    parser.add_argument("--results", type=Path, default=Path("runs/entities"), help="the sweep's output")
    options = parser.parse_args()
    torch.set_num_threads(1)
    results = read_results(options.results)
    table = Table("method", "rate, epochs, batch", "seeds", "validation F1", "test F1")
    for method in dict.fromkeys(one.method for one in results):
        best = best_settings([one for one in results if one.method == method])
        numbers = best[0].hyperparameters
        shown = f"{numbers['learning_rate']:g}, {numbers['epochs']}, {numbers['batch_size']}"
        test = fmean(measure_on_test(one, options.data, options.results) for one in best)
        table.row(method, shown, str(len(best)), f"{mean_metric(best):.3f}", f"{test:.3f}")


if __name__ == "__main__":
    main()
