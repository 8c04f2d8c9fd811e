"""The flags of a sweep, which win over its file."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from peltier_training.errors import TrainingError

Tables = dict[str, Any]


@dataclass(frozen=True)
class Flags:
    """`plain` replaces keys of the file, and `numbers` and `settings` (NAME=VALUE) win over each of its layers.

    `tasks`, `presets` and `sizes` choose among those of the file; presets and sizes may also be others. `data` are the
    fields of one task that no file describes, of those that were given.
    """

    tasks: Sequence[str] = ()
    presets: Sequence[str] = ()
    sizes: Sequence[str] = ()
    plain: Mapping[str, Any] = field(default_factory=dict)
    numbers: Mapping[str, Any] = field(default_factory=dict)
    settings: Sequence[str] = ()
    data: Mapping[str, Any] = field(default_factory=dict)

    def over(self, tables: Tables) -> Tables:
        """The tables of a file, or of none, with the flags that were given."""
        tables = {**tables, **{name: value for name, value in self.plain.items() if value}}
        if self.data:
            tables["tasks"] = self._described_task()
        elif self.tasks:
            tables["tasks"] = _chosen(_picked("tasks", tables, ()), self.tasks)
        if sizes := _picked("sizes", tables, self.sizes):
            tables["sizes"] = sizes
        methods = _picked("methods", tables, self.presets)
        tables["methods"] = {name: self._last(layer) for name, layer in methods.items()}
        return tables

    def _described_task(self) -> Tables:
        """The one task and its data; the paths are relative to the working directory."""
        files = {name: path.absolute() for name, path in self.data.items() if name in ("train", "validation")}
        if len(files) < 2 or len(self.tasks) != 1:
            others = [name.removesuffix("s").replace("_", "-") for name in self.data if name not in files]
            flags = "".join(f"; --{name} needs them" for name in others)
            raise TrainingError(f"give --train and --validation together, with exactly one --task{flags}")
        return {self.tasks[0]: {**self.data, **files}}

    def _last(self, method: Tables) -> Tables:
        """The method with the flags' numbers and settings, because its layer wins."""
        return {**method, **self.numbers, "settings": {**method.get("settings", {}), **_settings(self.settings)}}


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
            raise TrainingError(f"task {name!r} is not in the sweep, which {has}")
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
