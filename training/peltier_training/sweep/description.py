"""The description of a sweep, as in its TOML file, and the flags that win over the file."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from peltier_adapters.errors import sentences
from peltier_adapters.presets.composition import Setting
from peltier_adapters.spec.maps import Spec
from peltier_adapters.spec.tasks import TaskType
from pydantic import BeforeValidator, Field, ValidationError, ValidationInfo, field_validator, model_validator

from peltier_training.config.run import RankingLoss
from peltier_training.config.task_options import EmbeddingOptions, TextOptions
from peltier_training.errors import TrainingError

ALL = "all"
_OPTIONS = {"text": TextOptions, "embedding": EmbeddingOptions}
Value = TypeVar("Value")
Tables = dict[str, Any]


def _listed(value: Any) -> Any:
    return value if isinstance(value, list | tuple) else (value,)


# One value, or a list of values as an axis of the grid.
Axis = Annotated[tuple[Value, ...], BeforeValidator(_listed), Field(min_length=1)]


class SweepLayer(Spec):
    """Hyper-parameters and settings of a preset. Other layers, and finally the run's defaults, fill in what is None."""

    epochs: Axis[int] | None = None
    learning_rate: Axis[float] | None = None
    batch_size: Axis[int] | None = None
    warmup: Axis[float] | None = None
    weight_decay: Axis[float] | None = None
    dropout: Axis[float] | None = None
    backbone_dropout: Axis[float] | None = None
    max_length: Axis[int] | None = None
    eval_rows: Axis[int] | None = None
    patience: Axis[int] | None = None
    max_answer_length: Axis[int] | None = None
    stride: Axis[int] | None = None
    ranking_loss: Axis[RankingLoss] | None = None
    metric: str | None = None
    settings: dict[str, Axis[Setting]] = Field(default_factory=dict)

    def numbers(self) -> dict[str, tuple[Any, ...]]:
        given = {name: getattr(self, name) for name in SweepLayer.model_fields if name != "settings"}
        return {name: _listed(value) for name, value in given.items() if value is not None}


class SweepTask(SweepLayer):
    """Labelled data. `metric` chooses the epoch and is shown in the table; `text` is for a T5, and `embedding` for
    embeddings."""

    train: Path
    validation: Path
    text_columns: Axis[str] = ("text",)
    label_column: str = "label"
    task_type: TaskType = "classification"
    labels: tuple[str, ...] | None = None
    label_separator: str | None = None
    skip_bad_rows: bool = False
    text: TextOptions = TextOptions()
    embedding: EmbeddingOptions = EmbeddingOptions()

    @field_validator("text", "embedding", mode="before")
    @classmethod
    def _check_options(cls, given: Any, info: ValidationInfo) -> Any:
        known = [field.name for field in fields(_OPTIONS[str(info.field_name)])]
        for name in given if isinstance(given, dict) else ():
            if name not in known:
                raise ValueError(f"{info.field_name} has no option {name!r}; it has {', '.join(known)}")
        return given


class SweepMethod(SweepLayer):
    """A preset with settings; if `preset` is None, the method's name is the preset. `merge_report` also measures routes
    through AdaMix's experts: the ledger has their metrics, and the report a plot."""

    preset: str | None = None
    merge_report: bool = False


class Description(Spec):
    """The whole grid: tasks x methods x sizes x seeds x every axis. A size is a number of training rows, drawn for each
    seed, or "all".

    With `dev_rows`, that many other training rows choose the epoch, and the validation file only measures (UniPELT
    section 4.1); without it the validation file does both. Later layers win: `common`, the task's, the size's, the
    method's.
    """

    backbone: str = "minilm"
    device: Literal["auto", "cpu", "cuda"] = "auto"
    dtype: Literal["float32", "bfloat16", "int8"] = "float32"
    seeds: Axis[Annotated[int, Field(ge=0)]] = (0,)
    dev_rows: Annotated[int, Field(ge=1)] | None = None
    common: SweepLayer = SweepLayer()
    tasks: Annotated[dict[str, SweepTask], Field(min_length=1)]
    methods: Annotated[dict[str, SweepMethod], Field(min_length=1)]
    sizes: Annotated[dict[str, SweepLayer], Field(min_length=1, default_factory=lambda: {ALL: SweepLayer()})]

    @model_validator(mode="after")
    def _check_reports(self) -> Self:
        if self.dev_rows is not None and any(method.merge_report for method in self.methods.values()):
            raise ValueError("a merge report compares routes on the rows that choose the epoch; remove dev_rows")
        return self

    @model_validator(mode="after")
    def _check_sizes(self) -> Self:
        for name in self.sizes:
            if name != ALL and not (name.isascii() and name.isdigit() and int(name) > 0):
                raise ValueError(f"size {name!r} must be a number of rows above 0, or {ALL!r}")
        return self


def read_description(path: Path) -> dict[str, Any]:
    """The unchecked tables of a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise TrainingError(f"sweep file {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise TrainingError(f"sweep file {path} is not TOML: {error}") from None


def create_description(tables: Mapping[str, Any]) -> Description:
    """The checked description. Raises a `TrainingError` with every mistake."""
    try:
        return Description.model_validate(tables)
    except ValidationError as error:
        raise TrainingError(f"the sweep is invalid: {'; '.join(sentences(error))}") from None


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
    values: dict[str, list[str]] = {}
    for pair in pairs:
        name, separator, value = pair.partition("=")
        if not separator:
            raise TrainingError(f"--set takes NAME=VALUE, not {pair!r}")
        values.setdefault(name, []).append(value)
    return values
