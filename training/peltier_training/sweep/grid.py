"""From a description to its trials. All are checked before the first one starts."""

import hashlib
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

from peltier_adapters.presets.baselines import Baseline, find_method
from peltier_adapters.presets.composition import Setting
from peltier_adapters.spec.parts import count_parameters
from peltier_adapters.spec.tasks import EMBEDDING_TYPES
from peltier_backbone.checkpoint.checkpoint import CHECKPOINT_PATTERNS, find_checkpoint
from peltier_backbone.checkpoint.config import load_config

from peltier_training.baselines.method_check import check_baseline, check_pooler
from peltier_training.config.preparation import Prepared, check_settings, fill_in, resolve
from peltier_training.config.run import Hyperparameters, Run
from peltier_training.data.data import Data, LabelledData, read_labelled, skipped_lines
from peltier_training.data.examples import are_scored
from peltier_training.errors import TrainingError
from peltier_training.sweep.description import ALL, Description, SweepLayer, SweepTask
from peltier_training.sweep.trial import Trial

GridPoint = Mapping[str, Any]


@dataclass(frozen=True)
class TaskData:
    """The files of a task with their rows, labels and digests, and messages about skipped rows.
    `are_scored` says whether the validation rows have labels, which pairs of an embedding may lack."""

    data: Data
    rows: LabelledData
    digests: Mapping[str, str]
    skipped: Sequence[str]
    are_scored: bool

    @classmethod
    def read(cls, task: SweepTask, root: Path) -> "TaskData":
        """The data of a task with paths relative to `root`. Raises a `TrainingError` with the line of a mistake."""
        data = Data(
            root / task.train,
            root / task.validation,
            task.text_columns,
            task.label_column,
            task.labels,
            task.label_separator or None,
            task.skip_bad_rows,
        )
        data.check(task.task_type)
        found = read_labelled(data, task.task_type)
        # A small draw may miss a label of the validation set.
        named = found.labels.names if task.task_type in ("classification", "multilabel") else None
        digests = {"train": digest(data.train), "validation": digest(data.validation)}
        drawn = replace(data, labels=named, labels_found=data.labels is None)
        skipped = skipped_lines({data.train: found.train, data.validation: found.validation})
        scored = task.task_type not in EMBEDDING_TYPES or are_scored(found.validation.examples)
        return cls(drawn, found, digests, skipped, scored)


def digest(*paths: Path) -> str:
    """The digest of the files' contents in order, independent of their names."""
    found = hashlib.sha256()
    for path in paths:
        with path.open("rb") as file:
            found.update(hashlib.file_digest(file, "sha256").digest())
    return found.hexdigest()


class Grid:
    """The trials of a description with paths relative to `root`, for a sweep into the folder `output`."""

    def __init__(self, description: Description, root: Path, output: Path) -> None:
        self._description, self._writable = description, _nearest(output)
        checkpoint = find_checkpoint(description.backbone)
        self._checkpoint, self._config = checkpoint, load_config(checkpoint)
        self._backbone_digest = digest(*_backbone_files(checkpoint))
        self._sources = {name: TaskData.read(task, root) for name, task in description.tasks.items()}

    @property
    def skipped(self) -> list[str]:
        """Messages about skipped rows, once for each file."""
        return list(dict.fromkeys(line for source in self._sources.values() for line in source.skipped))

    def warnings(self, trials: Sequence[Trial]) -> list[str]:
        """What the preflight finds in all rows of each task, at each length that a trial reads of them. Imports
        torch."""
        from peltier_training.fit.preflight import Preflight

        runs = {(trial.run.task, trial.run.hyperparameters.max_length, trial.run.text): trial.run for trial in trials}
        return list(
            dict.fromkeys(
                f"{run.task}: {sentence}"
                for run in runs.values()
                for sentence in Preflight(Prepared(run, self._sources[run.task].rows)).warnings()
            )
        )

    def trials(self) -> list[Trial]:
        """All trials, ordered by seed. Raises a `TrainingError` or an `AdapterError` for the first invalid one."""
        given = self._description
        trials = [
            trial
            for seed in given.seeds
            for task, method, size in product(given.tasks, given.methods, given.sizes)
            for trial in self._at(task, method, size, seed)
        ]
        _check_distinct(trials)
        return trials

    def _at(self, task: str, method: str, size: str, seed: int) -> Iterator[Trial]:
        given = self._description
        layers = (given.common, given.tasks[task], given.sizes[size], given.methods[method])
        num_rows = None if size == ALL else int(size)
        for numbers, settings, axes in _points(layers):
            run = self._run(task, method, {**numbers, "seed": seed}, settings)
            yield self._trial(run, method, num_rows, axes)

    def _run(self, task: str, method: str, numbers: GridPoint, settings: Mapping[str, str]) -> Run:
        given = self._description
        described, source = given.tasks[task], self._sources[task]
        run = Run(
            task=task,
            task_type=described.task_type,
            preset=given.methods[method].preset or method,
            backbone=given.backbone,
            data=source.data,
            output=self._writable / f"{task}.safetensors",  # replaced by a path in the trial's own folder
            directory=self._writable,
            hyperparameters=Hyperparameters(**numbers),
            text=described.text,
            embedding=described.embedding,
            overrides=settings,
            device=given.device,
            dtype=given.dtype,
            merge_report=given.methods[method].merge_report,
        )
        run.check()
        return resolve(run, self._config, source.rows.labels, is_scored=source.are_scored)

    def _trial(self, run: Run, method: str, size: int | None, axes: Mapping[str, str]) -> Trial:
        source, dev_rows = self._sources[run.task], self._description.dev_rows or 0
        num_rows = len(source.rows.train.examples)
        if (size or 1) + dev_rows > num_rows:
            raise TrainingError(
                f"task {run.task!r} has {num_rows} training rows, too few for {size or 1} to train on and "
                f"{dev_rows} to choose the epoch"
            )
        run = fill_in(run, self._config, num_rows - dev_rows if size is None else size)
        settings, parameters = self._count(run, source)
        evidence = {**source.digests, "backbone": self._backbone_digest, "settings": settings}
        return Trial(run, method, size, dev_rows, axes, evidence, parameters)

    def _count(self, run: Run, source: TaskData) -> tuple[dict[str, Setting], int]:
        """All settings of the run's method, and the number of parameters that it trains."""
        method = find_method(run.preset)
        settings = method.settings(run.overrides, self._config)
        if isinstance(method, Baseline):
            check_baseline(method, run, self._config, self._checkpoint)
            return settings, method.count_parameters(settings, self._config)
        check_settings(settings, self._config)
        parts = method.compose(
            settings, self._config, outputs=max(run.num_outputs(source.rows.labels.names, self._config), 1)
        )
        check_pooler(parts, run.backbone, self._checkpoint)
        return settings, count_parameters(parts, self._config)


def _check_distinct(trials: Iterable[Trial]) -> None:
    """Refuse equal trials of one method, which would understate the standard deviation. Two methods may be equal."""
    seen: set[tuple[str, str]] = set()
    for trial in trials:
        if (trial.method, trial.key) in seen:
            raise TrainingError(f"{trial.name} is in the grid twice; each axis takes a value once")
        seen.add((trial.method, trial.key))


def _nearest(folder: Path) -> Path:
    """`folder` or its nearest existing parent. Raises a `TrainingError` if `folder` cannot be created there."""
    whole = folder.absolute()
    existing = next(path for path in (whole, *whole.parents) if path.exists())
    if not existing.is_dir() or not os.access(existing, os.W_OK):
        raise TrainingError(f"output {folder} cannot be written: {existing} is not a folder, or it is read-only")
    return existing


def _points(layers: tuple[SweepLayer, ...]) -> Iterator[tuple[GridPoint, dict[str, str], dict[str, str]]]:
    """For each point the hyper-parameters, the settings, and those of both that vary."""
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


def _backbone_files(checkpoint: Path) -> list[Path]:
    return sorted({path for pattern in CHECKPOINT_PATTERNS for path in checkpoint.glob(pattern)})
