"""Checks the settings and reads the rows of a run or an evaluation, before any weight is read. Imports no torch."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peltier_adapters.artifact.manifest import backbone_mismatches, read_manifest
from peltier_adapters.errors import ArtifactError
from peltier_adapters.presets.baselines import Baseline, find_method
from peltier_adapters.presets.composition import PresetSettings
from peltier_adapters.spec.tasks import TOKEN_TYPES
from peltier_backbone.checkpoint.checkpoint import find_checkpoint
from peltier_backbone.checkpoint.config import BackboneConfig, load_config

from peltier_training.config.defaults import fill_in
from peltier_training.config.run import Run
from peltier_training.config.templates import find_template
from peltier_training.config.training_settings import check_settings
from peltier_training.data.data import Data
from peltier_training.data.examples import LabelledRows, refuse
from peltier_training.data.labelled_data import HINT, LabelledData, read_file, read_labelled
from peltier_training.data.pairs import are_scored
from peltier_training.errors import TrainingError

_COLUMNS = ("text_columns", "label_column", "label_separator")


@dataclass(frozen=True)
class Prepared:
    """A resolved run with its data."""

    run: Run
    data: LabelledData


def prepare(run: Run) -> Prepared:
    """Resolve a run. Raises a `TrainingError` or an `AdapterError` for every mistake that shows without weights."""
    run.check()
    data = read_labelled(run.data, run.task_type)
    run.check_metric(data.labels.names)
    config = load_config(find_checkpoint(run.backbone))
    run.check_length(config)
    run = fill_in(run.resolved(config), config, len(data.train.examples))
    if run.task_type == "embedding":
        run = run.with_pair_metric(scored=are_scored(data.validation.examples))
        run.embedding.check_size(run.num_outputs((), config))
    _check_method(run, config, run.num_outputs(data.labels.names, config))
    return Prepared(run, data)


def _check_method(run: Run, config: BackboneConfig, outputs: int) -> None:
    """Check the method's settings and a T5's template."""
    method = find_method(run.preset)
    settings = method.settings(run.overrides, config)
    _check_pooling(run, settings)
    if not isinstance(method, Baseline):
        check_settings(settings, config)
        method.compose(settings, config, outputs=outputs)
    elif run.dtype == "int8":
        raise TrainingError(f"preset {run.preset!r} changes the backbone's weights, and weights in int8 are frozen")
    if config.generates:
        find_template(run.text.template, run.data.inputs)


def _check_pooling(run: Run, settings: PresetSettings) -> None:
    """Refuse a head that does not fit the type of the task."""
    pooling = settings.get("pooling", "auto")
    if run.task_type in TOKEN_TYPES and pooling != "tokens":
        raise TrainingError(f"setting 'pooling' is {pooling!r}; {run.task_type} needs 'tokens', a head of every token")
    if run.task_type not in TOKEN_TYPES and pooling == "tokens":
        raise TrainingError(f"setting 'pooling' is 'tokens', a head of every token; {run.task_type} has one vector")


def prepare_evaluation(artifact: Path, path: Path, backbone: str, given: Mapping[str, Any]) -> LabelledRows:
    """The rows of `path` as the artifact's task reads them. `given` are fields of `Data`; columns and separator that
    are not among them are as in training.

    Refuses an artifact or a backbone that cannot be read or do not fit each other, and names every bad row.
    """
    manifest = read_manifest(artifact)
    config = load_config(find_checkpoint(backbone))
    if reasons := backbone_mismatches(manifest, config, manifest.backbone.fingerprint):
        raise ArtifactError(reasons)
    task, trained = manifest.task, manifest.training.data
    chosen = {**{name: trained[name] for name in _COLUMNS if trained.get(name)}, **given}
    columns = tuple(chosen.pop("text_columns", ("text",)))
    separator = chosen.pop("label_separator", None) or None
    data = Data(path, path, columns, labels=task.labels, label_separator=separator, **chosen)
    data.check(task.type)
    rows = read_file(data, path, task.type, task.labels)
    refuse(rows.bad if not data.skip_bad_rows else (), HINT)
    return rows
