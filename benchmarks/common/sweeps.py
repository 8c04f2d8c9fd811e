"""Results of `peltier sweep`, for tables that need more than its own."""

import statistics
from collections.abc import Iterable, Sequence
from pathlib import Path

from peltier_adapters.artifact.artifact import load_artifact
from peltier_backbone.backbone import Backbone
from peltier_training.config.preparation import prepare_evaluation
from peltier_training.config.run import METRICS
from peltier_training.data.examples import Example
from peltier_training.evaluate.adapters import evaluate
from peltier_training.sweep.trial import TrialResult


def read_results(folder: Path) -> list[TrialResult]:
    """The last result of each trial that succeeded."""
    lines = (folder / "results.jsonl").read_text().splitlines()
    last = {one.key: one for one in map(TrialResult.model_validate_json, lines)}
    return [one for one in last.values() if one.failure is None]


def artifact_path(folder: Path, result: TrialResult) -> Path:
    """The artifact of a trial of the sweep in `folder`. A baseline has none."""
    return folder / "trials" / result.key / f"{result.task}.safetensors"


def mean_metric(results: Iterable[TrialResult]) -> float:
    """The mean over trials, such as those of several seeds, of the metric that chose the epoch."""
    return statistics.fmean(one.metrics[one.hyperparameters["metric"]] for one in results)


def read_rows(artifact: Path, files: Sequence[Path]) -> list[Example]:
    """The rows of all `files` that exist, with the columns that the artifact was trained on."""
    found = [prepare_evaluation(artifact, file, "minilm", {}).examples for file in files if file.exists()]
    return [example for examples in found for example in examples]


def measure_artifact(backbone: Backbone, artifact: Path, rows: Sequence[Example]) -> float:
    """The artifact's main metric on `rows`."""
    loaded = load_artifact(artifact, backbone)
    return evaluate(backbone, loaded, rows).metrics[METRICS[loaded.manifest.task.type][0]]
