"""What the command line says of a sweep, laid over its file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from peltier_training.errors import TrainingError

Tables = dict[str, Any]


@dataclass(frozen=True)
class OneTask:
    """The data of a task that no file describes. `details` are further keys of it, None where a flag was not given."""

    train: Path | None = None
    validation: Path | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def tables(self, tasks: Sequence[str]) -> Tables:
        """As the file would have it, empty if no flag was given; its paths begin where the command was given."""
        details = {name: value for name, value in self.details.items() if value is not None}
        if self.train is None and self.validation is None and not details:
            return {}
        if self.train is None or self.validation is None or len(tasks) != 1:
            flags = "".join(f", and --{name.removesuffix('s').replace('_', '-')} to them" for name in details)
            raise TrainingError(f"--train and --validation belong together, and to one --task{flags}")
        own = {"train": self.train.absolute(), "validation": self.validation.absolute()}
        return {"tasks": {tasks[0]: {**own, **details}}}


@dataclass(frozen=True)
class Flags:
    """`plain` replaces keys of the file, `numbers` and `settings` (NAME=VALUE) win over every layer of it; `tasks`,
    `presets` and `sizes` choose among the file's, and of the latter two may name others."""

    tasks: Sequence[str] = ()
    presets: Sequence[str] = ()
    sizes: Sequence[str] = ()
    plain: Mapping[str, Any] = field(default_factory=dict)
    numbers: Mapping[str, Any] = field(default_factory=dict)
    settings: Sequence[str] = ()
    one_task: OneTask = OneTask()

    def over(self, tables: Tables) -> Tables:
        """The tables of a file, or of none, with the flags that were given."""
        tables = {**tables, **{name: value for name, value in self.plain.items() if value}}
        if own := self.one_task.tables(self.tasks):
            tables |= own
        elif self.tasks:
            tables["tasks"] = _chosen(_picked("tasks", tables, ()), self.tasks)
        if sizes := _picked("sizes", tables, self.sizes):
            tables["sizes"] = sizes
        methods = _picked("methods", tables, self.presets)
        tables["methods"] = {name: self._last(layer) for name, layer in methods.items()}
        return tables

    def _last(self, method: Tables) -> Tables:
        """The method with the flags' numbers and settings, for its layer wins."""
        numbers = {name: value for name, value in self.numbers.items() if value}
        return {**method, **numbers, "settings": {**method.get("settings", {}), **_settings(self.settings)}}


def _picked(key: str, tables: Tables, names: Sequence[str]) -> Tables:
    """The layers under `key`, which may be a mere list of names; of them those of `names`, where any are given."""
    found = tables.get(key, {})
    layers = {str(name): {} for name in found} if isinstance(found, list) else found
    if not isinstance(layers, dict) or not all(isinstance(layer, dict) for layer in layers.values()):
        raise TrainingError(f"{key} is {found!r}; it must be a list of names or a table of tables")
    return {name: layers.get(name, {}) for name in names} if names else layers


def _chosen(tasks: Tables, names: Sequence[str]) -> Tables:
    for name in names:
        if name not in tasks:
            has = f"has {', '.join(tasks)}" if tasks else "has none: give --train and --validation"
            raise TrainingError(f"task {name!r} is not one of the sweep, which {has}")
    return {name: tasks[name] for name in names}


def _settings(pairs: Sequence[str]) -> dict[str, list[str]]:
    """All values of each name."""
    values: dict[str, list[str]] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator:
            raise TrainingError(f"--set takes NAME=VALUE, not {pair!r}")
        values.setdefault(name, []).append(value)
    return values
