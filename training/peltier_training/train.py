"""One training run: data, trainable adapter, Trainer, best epoch, artifact."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path

import torch
from peltier_adapters.batch import encode_input
from peltier_adapters.errors import InputError
from peltier_adapters.manifest import Manifest, TaskSpec, TrainingRecord, read_manifest
from peltier_adapters.presets import Preset, find_preset
from peltier_backbone.load import Backbone, load_backbone
from peltier_backbone.packing import Encoded
from pydantic import ValidationError

from peltier_training.data import Example, read_examples
from peltier_training.errors import TrainingError
from peltier_training.export import Trained, export, measure
from peltier_training.labels import Labels, find_labels
from peltier_training.model import TrainableAdapter
from peltier_training.run import Run
from peltier_training.trainer import EncodedRows, fit

_VERSIONS = ("peltier", "torch", "transformers")


def train(run: Run) -> Manifest:
    """Train, keep the best epoch by the validation metric, and write the artifact to `run.output`.

    The recorded metrics and golden examples come from the artifact itself on a float32 backbone, as it will be served.
    """
    run.check()
    preset = find_preset(run.preset)
    examples, validation = _read(run)
    labels = find_labels(run.task_type, examples, run.data.labels)
    if run.metric == "f1" and len(labels.names) != 2:
        raise TrainingError(f"metric 'f1' is for two labels, the task has {len(labels.names)}; f1_macro is for any")
    backbone = load_backbone(run.backbone, device=run.device, dtype=run.dtype)
    task = _task(run, backbone, labels)
    model = _model(run, preset, backbone, labels, examples)
    fit(run, model, [_rows(backbone, task, labels, some) for some in (examples, validation)])
    exact = backbone if run.dtype == "float32" else load_backbone(run.backbone, device=run.device)
    adapter = Trained(run.task, run.preset, model.parts, model.merged(), task)
    found = measure(exact, adapter, validation)
    record = _record(run, model, [len(examples), len(validation)], found)
    _write(run.output, export(exact, adapter, [example.input for example in validation], record))
    return read_manifest(run.output)


def _read(run: Run) -> tuple[list[Example], list[Example]]:
    columns = run.data.text_columns, run.data.label_column
    return read_examples(run.data.train, *columns), read_examples(run.data.validation, *columns)


def _task(run: Run, backbone: Backbone, labels: Labels) -> TaskSpec:
    limit = backbone.config.max_tokens
    if run.hyperparameters.max_length > limit:
        raise TrainingError(f"max_length is {run.hyperparameters.max_length}; this backbone takes {limit} tokens")
    try:
        return TaskSpec(
            type=labels.type,
            labels=labels.names,
            inputs="pair" if len(run.data.text_columns) == 2 else "single",
            max_length=run.hyperparameters.max_length,
        )
    except ValidationError as error:
        reason = error.errors()[0]
        raise TrainingError(f"{run.data.train}: task {reason['loc'][0]}: {reason['msg']}") from None


def _rows(backbone: Backbone, task: TaskSpec, labels: Labels, examples: Sequence[Example]) -> EncodedRows:
    return EncodedRows([_encode(backbone, task, example) for example in examples], labels.targets(examples))


def _encode(backbone: Backbone, task: TaskSpec, example: Example) -> Encoded:
    try:
        return encode_input(backbone, task, example.input)
    except InputError as error:
        raise TrainingError(f"{example.where}: {error}") from None


def _model(
    run: Run, preset: Preset, backbone: Backbone, labels: Labels, examples: Sequence[Example]
) -> TrainableAdapter:
    settings, numbers = preset.settings(run.overrides), run.hyperparameters
    parts = preset.compose(settings, backbone.config, outputs=len(labels.names))
    torch.manual_seed(numbers.seed)
    model = TrainableAdapter(backbone, parts, settings, dropout=numbers.dropout, seed=numbers.seed)
    if labels.type == "regression":
        model.center(float(labels.targets(examples).mean()))
    return model.to(backbone.device)


def _record(run: Run, model: TrainableAdapter, sizes: Sequence[int], found: Mapping[str, float]) -> TrainingRecord:
    data = {
        "train": run.data.train.name,
        "validation": run.data.validation.name,
        "train_rows": sizes[0],
        "validation_rows": sizes[1],
        "text_columns": list(run.data.text_columns),
        "label_column": run.data.label_column,
    }
    numbers = asdict(run.hyperparameters) | {"learning_rate": run.learning_rate, "metric": run.metric}
    return TrainingRecord(
        data=data,
        hyperparameters=numbers | {"dtype": run.dtype, "settings": dict(model.settings)},
        metrics=dict(found),
        versions={name: version(name) for name in _VERSIONS},
    )


def _write(path: Path, data: bytes) -> None:
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")  # each process of torchrun writes the same file
    try:
        partial.write_bytes(data)
        os.replace(partial, path)
    except OSError as error:
        raise TrainingError(f"output {path} cannot be written: {error.strerror}") from None
    finally:
        partial.unlink(missing_ok=True)
