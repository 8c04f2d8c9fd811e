"""The training record in an artifact and a report."""

from collections.abc import Mapping
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from peltier_adapters.artifact.manifest import TrainingRecord
from peltier_adapters.presets.composition import PresetSettings

from peltier_training.config.run import Run

_VERSIONS = ("peltier", "torch", "transformers")


def create_record(
    run: Run, settings: PresetSettings, sizes: Mapping[str, Any], found: Mapping[str, float]
) -> TrainingRecord:
    """The record of a resolved run, with the `sizes` of its data and the metrics that it `found`."""
    data = {
        "train": run.data.train.name,
        "validation": run.data.validation.name,
        **sizes,
        "text_columns": list(run.data.text_columns),
        "label_column": run.data.label_column,
    }
    if run.data.label_separator is not None:
        data["label_separator"] = run.data.label_separator
    numbers = asdict(run.hyperparameters) | {"metric": run.metric}
    if run.task_type == "embedding":
        numbers |= asdict(run.embedding)
    return TrainingRecord(
        data=data,
        hyperparameters=numbers | {"dtype": run.dtype, "settings": dict(settings)},
        metrics=dict(found),
        versions={name: version(name) for name in _VERSIONS},
    )
