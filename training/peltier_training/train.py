"""One training run: data, trainable adapter, Trainer, best epoch, artifact."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TypeVar

import torch
from peltier_adapters.manifest import Manifest, TrainingRecord, read_manifest
from peltier_adapters.presets import find_preset
from peltier_adapters.task_spec import TaskSpec
from peltier_backbone.checkpoint import find_checkpoint
from peltier_backbone.config import load_config
from peltier_backbone.load import Backbone, load_backbone

from peltier_training.data import Example, read_examples, thin_out
from peltier_training.errors import NotFiniteError, TrainingError
from peltier_training.export import Trained, export, measure
from peltier_training.labels import Labels, find_labels
from peltier_training.model import HeadedAdapter, TrainableAdapter
from peltier_training.rows import head_rows, text_rows
from peltier_training.run import Run
from peltier_training.task import create_task
from peltier_training.text_model import TextAdapter
from peltier_training.trainer import diverged, fit, fit_text

_VERSIONS = ("peltier", "torch", "transformers")
Adapter = TypeVar("Adapter", bound=TrainableAdapter)


def train(run: Run) -> Manifest:
    """Train, keep the best epoch by the validation metric, and write the artifact to `run.output`.

    The recorded metrics and golden examples come from the artifact itself on a float32 backbone, as it will be served.
    """
    run.check()
    run = run.resolved(load_config(find_checkpoint(run.backbone)))
    examples, validation = _read(run)
    labels = find_labels(run.task_type, examples, run.data.labels)
    if run.metric == "f1" and len(labels.names) != 2:
        raise TrainingError(f"metric 'f1' is for two labels, the task has {len(labels.names)}; f1_macro is for any")
    backbone = load_backbone(run.backbone, device=run.device, dtype=run.dtype)
    task = create_task(run, backbone, labels, examples)
    teach = _teach_text if backbone.config.generates else _teach_head
    model = teach(run, backbone, task, examples, thin_out(validation, run.hyperparameters.eval_rows))
    exact = backbone if run.dtype == "float32" else load_backbone(run.backbone, device=run.device)
    adapter = Trained(run.task, run.preset, model.parts, model.merged(), task)
    found = measure(exact, adapter, validation)
    record = _record(run, model, [len(examples), len(validation)], found)
    _write(run.output, export(exact, adapter, [example.input for example in validation], record))
    return read_manifest(run.output)


def _read(run: Run) -> tuple[list[Example], list[Example]]:
    columns = run.data.text_columns, run.data.label_column
    return read_examples(run.data.train, *columns), read_examples(run.data.validation, *columns)


def _teach_head(
    run: Run, backbone: Backbone, task: TaskSpec, examples: Sequence[Example], validation: Sequence[Example]
) -> TrainableAdapter:
    model = _create(HeadedAdapter, run, backbone, task)
    if task.type == "regression":
        model.center(float(Labels(task.type, task.labels).targets(examples).mean()))
    fit(run, model, head_rows(backbone, task, examples), head_rows(backbone, task, validation))
    return model


def _teach_text(
    run: Run, backbone: Backbone, task: TaskSpec, examples: Sequence[Example], validation: Sequence[Example]
) -> TrainableAdapter:
    model = _create(TextAdapter, run, backbone, task)

    def judge() -> dict[str, float]:
        try:
            return measure(backbone, Trained(run.task, run.preset, model.parts, model.merged(), task), validation)
        except NotFiniteError:
            raise diverged(run) from None

    fit_text(run, model, text_rows(backbone, task, model.parts, examples), judge)
    return model


def _create(kind: type[Adapter], run: Run, backbone: Backbone, task: TaskSpec) -> Adapter:
    preset, numbers = find_preset(run.preset), run.hyperparameters
    settings = preset.settings(run.overrides, backbone.config)
    parts = preset.compose(settings, backbone.config, outputs=len(task.labels))
    torch.manual_seed(numbers.seed)
    model = kind(backbone, parts, settings, dropout=numbers.dropout, seed=numbers.seed)
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
    numbers = asdict(run.hyperparameters) | {"metric": run.metric}
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
