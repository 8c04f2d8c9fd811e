"""From a description to its trials, each checked before any of them starts."""

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from peltier_adapters.baselines import Baseline, find_method
from peltier_adapters.composition import Setting
from peltier_adapters.spec import count_parameters
from peltier_backbone.checkpoint import CHECKPOINT_PATTERNS, find_checkpoint
from peltier_backbone.config import BackboneConfig, load_config

from peltier_training.data import Example, read_examples
from peltier_training.errors import TrainingError
from peltier_training.labels import Labels, find_labels
from peltier_training.run import Data, Hyperparameters, Run
from peltier_training.sweep.description import ALL, Description, Layer, Method, Task
from peltier_training.sweep.trial import Trial
from peltier_training.text_options import TextOptions

Point = Mapping[str, Any]


@dataclass(frozen=True)
class _Source:
    """A task's data, read once for all its trials."""

    data: Data
    labels: Labels
    num_rows: int
    digests: Mapping[str, str]


class Grid:
    """The trials of a description whose paths begin at `root`, for a sweep into the folder `output`."""

    def __init__(self, description: Description, root: Path, output: Path) -> None:
        self._description, self._output = description, output
        checkpoint = find_checkpoint(description.backbone)
        self._config: BackboneConfig = load_config(checkpoint)
        self._backbone_digest = _digest(*_backbone_files(checkpoint))
        self._sources = {name: _read(task, root) for name, task in description.tasks.items()}

    def trials(self) -> list[Trial]:
        """All of them, one seed after another; a `TrainingError` or an `AdapterError` for the first that cannot be."""
        given = self._description
        return [
            trial
            for seed in given.seeds
            for task, method, size in product(given.tasks, given.methods, given.sizes)
            for trial in self._at(task, method, size, seed)
        ]

    def _at(self, task: str, method: str, size: str, seed: int) -> Iterator[Trial]:
        given = self._description
        layers = (given.common, given.tasks[task], given.sizes[size], given.methods[method])
        num_rows = None if size == ALL else int(size)
        for numbers, settings, axes in _points(layers):
            run = self._run(task, method, {**numbers, "seed": seed}, settings)
            yield self._trial(run, method, num_rows, axes)

    def _run(self, task: str, method: str, numbers: Point, settings: Mapping[str, str]) -> Run:
        given = self._description
        described, source = given.tasks[task], self._sources[task]
        run = Run(
            task=task,
            task_type=described.task_type,
            preset=_preset(method, given.methods[method]),
            backbone=given.backbone,
            data=source.data,
            output=self._output.with_suffix(".safetensors"),
            directory=self._output,
            hyperparameters=Hyperparameters(**numbers),
            text=TextOptions(**described.text),
            overrides=settings,
            device=given.device,
            dtype=given.dtype,
            merge_report=given.methods[method].merge_report,
        )
        run.check()
        if run.metric == "f1" and len(source.labels.names) != 2:
            raise TrainingError(f"task {task!r}: metric 'f1' is for two labels, it has {len(source.labels.names)}")
        if run.hyperparameters.max_length > (limit := self._config.max_tokens):
            raise TrainingError(f"max_length is {run.hyperparameters.max_length}; this backbone takes {limit} tokens")
        return run.resolved(self._config)

    def _trial(self, run: Run, method: str, size: int | None, axes: Mapping[str, str]) -> Trial:
        source, dev_rows = self._sources[run.task], self._description.dev_rows or 0
        if (size or 1) + dev_rows > source.num_rows:
            raise TrainingError(
                f"task {run.task!r} has {source.num_rows} training rows, from which {size or 1} to train on and "
                f"{dev_rows} to choose the epoch cannot be drawn"
            )
        settings, parameters = self._count(run, source)
        evidence = {**source.digests, "backbone": self._backbone_digest, "settings": settings}
        return Trial(run, method, size, dev_rows, axes, evidence, parameters)

    def _count(self, run: Run, source: _Source) -> tuple[dict[str, Setting], int]:
        """All settings of the run's method, and the parameters it trains."""
        method = find_method(run.preset)
        settings = method.settings(run.overrides, self._config)
        if isinstance(method, Baseline):
            return settings, method.count_parameters(settings, self._config)
        parts = method.compose(settings, self._config, outputs=max(len(source.labels.names), 1))
        return settings, count_parameters(parts, self._config)


def _preset(name: str, method: Method) -> str:
    return method.preset or name


def _points(layers: tuple[Layer, ...]) -> Iterator[tuple[Point, dict[str, str], dict[str, str]]]:
    """Hyper-parameters, settings and, of both, those that vary."""
    numbers: dict[str, tuple[Any, ...]] = {}
    settings: dict[str, tuple[Any, ...]] = {}
    for layer in layers:
        numbers |= layer.numbers()
        settings |= layer.settings
    for values in product(*numbers.values(), *settings.values()):
        chosen = dict(zip(numbers, values, strict=False))
        texts = {name: _text(value) for name, value in zip(settings, values[len(numbers) :], strict=True)}
        every = {**{name: _text(value) for name, value in chosen.items()}, **texts}
        lengths = {**numbers, **settings}
        yield chosen, texts, {name: text for name, text in every.items() if len(lengths[name]) > 1}


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _read(task: Task, root: Path) -> _Source:
    data = Data(root / task.train, root / task.validation, task.text_columns, task.label_column)
    examples, validation = (
        read_examples(path, task.text_columns, task.label_column) for path in (data.train, data.validation)
    )
    labels = find_labels(task.task_type, examples, task.labels)
    _check_labels(labels, validation)
    # A small draw may miss a label, which the validation set has.
    named = labels.names if task.task_type in ("classification", "multilabel") else None
    digests = {"train": _digest(data.train), "validation": _digest(data.validation)}
    return _Source(replace(data, labels=named), labels, len(examples), digests)


def _check_labels(labels: Labels, examples: list[Example]) -> None:
    if labels.type == "text2text":
        labels.texts(examples)
    else:
        labels.targets(examples)


def _backbone_files(checkpoint: Path) -> list[Path]:
    """Configuration, weights and tokenizer."""
    return sorted({path for pattern in CHECKPOINT_PATTERNS for path in checkpoint.glob(pattern)})


def _digest(*paths: Path) -> str:
    digest = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            digest.update(hashlib.file_digest(file, "sha256").digest())
    return digest.hexdigest()
